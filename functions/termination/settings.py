"""What termination is told by its environment."""

from __future__ import annotations

from shared.settings import Settings


class TerminationSettings(Settings, frozen=True, kw_only=True):
    """Its own queue, for drains that go on."""

    termination_queue_url: str
    dead_letter_queue_url: str
