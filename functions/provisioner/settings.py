"""The provisioner function's environment variables."""

from __future__ import annotations

from typing import Literal

from shared.base.settings import ProvisioningSettings


class ProvisionerSettings(ProvisioningSettings, frozen=True, kw_only=True):
    """What provisioning needs, the queue for malformed messages, and what sends hints about pods."""

    dead_letter_queue_url: str
    relay: Literal["function", "pod", "webhook"] = "function"
