"""What disruption is told by its environment."""

from __future__ import annotations

from shared.provisioning.settings import ProvisioningSettings


class DisruptionSettings(ProvisioningSettings, frozen=True, kw_only=True):
    """What provisioning needs, because replacements come first; its own queue for wake-ups, termination's for the rest.

    The table also keeps wake-ups already sent and the decision log.
    """

    disruption_queue_url: str
    termination_queue_url: str
    dead_letter_queue_url: str
