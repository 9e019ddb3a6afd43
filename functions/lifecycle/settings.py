"""What the lifecycle function is told by its environment."""

from __future__ import annotations

from shared.settings import Settings


class LifecycleSettings(Settings, frozen=True, kw_only=True):
    """The profile for classes that name none; the queue takes what must be drained or terminated; prices to sum up."""

    catalog_bucket: str
    node_instance_profile: str
    termination_queue_url: str
