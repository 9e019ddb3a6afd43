"""What disruption is told by its environment."""

from __future__ import annotations

from shared.settings import Settings


class DisruptionSettings(Settings, frozen=True, kw_only=True):
    """Its own queue for wake-ups, termination's for what goes, the table for wake-ups already sent."""

    table_name: str
    disruption_queue_url: str
    termination_queue_url: str
    dead_letter_queue_url: str
