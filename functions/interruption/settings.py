"""What the interruption function is told by its environment."""

from __future__ import annotations

from shared.settings import ProvisioningSettings


class InterruptionSettings(ProvisioningSettings, frozen=True, kw_only=True):
    """What provisioning needs, for replacements; termination's queue for what is drained; its own dead letters."""

    termination_queue_url: str
    dead_letter_queue_url: str
