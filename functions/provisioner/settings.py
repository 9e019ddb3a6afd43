"""What the provisioner is told by its environment."""

from __future__ import annotations

from shared.settings import ProvisioningSettings


class ProvisionerSettings(ProvisioningSettings, frozen=True, kw_only=True):
    """What provisioning needs, and the queue for messages that nobody can read."""

    dead_letter_queue_url: str
