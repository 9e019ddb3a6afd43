"""Settings of the termination function, from environment variables."""

from __future__ import annotations

from shared.base.settings import Settings


class TerminationSettings(Settings, frozen=True, kw_only=True):
    """``termination_queue_url`` is its own queue, for requeued drains. ``table_name`` has the decision log."""

    table_name: str
    termination_queue_url: str
    dead_letter_queue_url: str
