"""What the interruption function is told by its environment."""

from __future__ import annotations

from shared.settings import Settings


class InterruptionSettings(Settings, frozen=True, kw_only=True):
    """Termination's queue for what must be drained, the table for offerings that are gone."""

    table_name: str
    termination_queue_url: str
    dead_letter_queue_url: str
