"""Calls of the API server to admission webhooks at function URLs, with the faults of a world.

A fault at service "webhook", operation "POST" can delay a call, lose its connection or answer with an error status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from infra.cluster.kubernetes import webhook_configuration
from local.faults import Fault, InjectionPoint
from local.kubernetes.registry.admission_webhooks import CallError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.aws.cloud import Cloud
    from local.aws.function_urls import FunctionUrls
    from local.faults import Faults
    from local.world.control_plane import ControlPlane

LOCAL_PATH = "path-of-a-simulated-cluster"
"""No secret: it opens a function of this process, and nothing listens for it."""
_OK = 200
_OUTPUT = "WebhookUrl"


def with_digest(context: Mapping[str, str]) -> dict[str, str]:
    """The context, with the digest of the path if it deploys the webhook."""
    digest = {"webhookDigest": webhook_configuration.digest(LOCAL_PATH)} if context.get("relay") == "webhook" else {}
    return {**digest, **context}


def begin(aws: Cloud, control_plane: ControlPlane, *, sleep: Callable[[float], None]) -> list[dict[str, Any]]:
    """Let the API server call function URLs, if the webhook is deployed; the objects with which it does."""
    if _OUTPUT not in aws.deployed.outputs:
        return []
    control_plane.call_webhooks(WebhookCalls(aws.function_urls, aws.faults, sleep=sleep))
    return [webhook_configuration.configuration(f"{aws.deployed.outputs[_OUTPUT]}{LOCAL_PATH}")]


class WebhookCalls:
    """Posts reviews to function URLs; ``sleep`` takes seconds of the world's time."""

    def __init__(self, urls: FunctionUrls, faults: Faults, *, sleep: Callable[[float], None]) -> None:
        self._urls = urls
        self._faults = faults
        self._sleep = sleep

    def __call__(self, url: str, review: bytes, timeout: float) -> bytes:
        """The webhook's answer.

        Raises:
            CallError: there is none within the timeout (seconds), or its status isn't 200.
        """
        host = urlsplit(url).netloc
        fault = self._faults.next_fault(InjectionPoint(service="webhook", operation="POST", target=host)) or Fault()
        self._sleep(min(fault.delay, timeout))
        if fault.disconnect == "before":
            raise CallError("connection refused")
        if fault.code:
            raise CallError(f"status {fault.status}")
        status, body = self._urls.request("POST", url, review)
        # The function runs to its end, whether or not anybody waits for it.
        if fault.delay >= timeout:
            raise CallError("context deadline exceeded")
        if fault.disconnect or status != _OK:
            raise CallError(f"status {status}")
        return body
