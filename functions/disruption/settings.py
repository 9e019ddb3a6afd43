"""What disruption is told by its environment."""

from __future__ import annotations

from shared.settings import Settings


class DisruptionSettings(Settings, frozen=True, kw_only=True):
    """What replacements are chosen and launched with; its own queue for wake-ups, termination's for what goes.

    The table keeps unavailable offerings, wake-ups already sent, and the decision log.
    """

    table_name: str
    catalog_bucket: str
    node_instance_profile: str
    disruption_queue_url: str
    termination_queue_url: str
    dead_letter_queue_url: str
