"""The provisioner function's environment variables."""

from __future__ import annotations

from shared.settings import ProvisioningSettings


class ProvisionerSettings(ProvisioningSettings, frozen=True, kw_only=True):
    """What provisioning needs, and the queue for malformed messages."""

    dead_letter_queue_url: str
