"""How many pods wait in each queue of a real scheduler, from its metrics."""

from __future__ import annotations

import re
import ssl
import urllib.request

_PENDING_PODS = re.compile(r'^scheduler_pending_pods\{queue="(\w+)"\} (\S+)$', re.MULTILINE)
_SECONDS = 10


def pending_pods(url: str, certificate_authority: str) -> dict[str, int]:
    """The number of pods by queue: active, backoff, gated, unschedulable.

    Raises:
        OSError: the scheduler doesn't answer.
    """
    context = ssl.create_default_context(cadata=certificate_authority)
    with urllib.request.urlopen(f"{url}/metrics", timeout=_SECONDS, context=context) as answer:  # noqa: S310 (https)
        text = answer.read().decode()
    return {queue: int(float(count)) for queue, count in _PENDING_PODS.findall(text)}
