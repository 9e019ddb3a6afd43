"""The disruption function's environment variables."""

from __future__ import annotations

from shared.settings import CommitmentSettings


class DisruptionSettings(CommitmentSettings, frozen=True, kw_only=True):
    """What replacements are launched with, the function's own queue for requeues, and the termination function's.

    The table keeps unavailable offerings, requeue messages already sent, and the decision log.
    """

    table_name: str
    catalog_bucket: str
    node_instance_profile: str
    disruption_queue_url: str
    termination_queue_url: str
    dead_letter_queue_url: str
