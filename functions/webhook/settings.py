"""The webhook function's environment variables."""

from __future__ import annotations

from shared.base.settings import Settings


class WebhookSettings(Settings, frozen=True, kw_only=True):
    """The queue of the provisioner, and the SHA-256 digest (hexadecimal) of the secret path."""

    provisioning_queue_url: str
    webhook_digest: str
