"""The settings of the interruption function."""

from __future__ import annotations

from shared.base.settings import ProvisioningSettings


class InterruptionSettings(ProvisioningSettings, frozen=True, kw_only=True):
    """The provisioning settings for launching replacements, the termination queue, and the dead-letter queue."""

    termination_queue_url: str
    dead_letter_queue_url: str
