"""The names of a cluster's AWS resources: ``tenon-<cluster>-<purpose>``.

They are set explicitly, because operators can't recognise names that CloudFormation generates. A cluster name that is
too long is cut and gets a hash suffix.
"""

from __future__ import annotations

import hashlib

QUEUE_LENGTH = 80
FUNCTION_LENGTH = 64
_DIGEST = 8
RUNBOOK_SEPARATOR = " What to do: "
"""Between an alarm's description and the link to its runbook."""


def name(cluster: str, purpose: str, *, longest: int, suffix: str = "") -> str:
    """The name of one of a cluster's resources, at most ``longest`` characters with its suffix."""
    max_length = longest - len(f"tenon--{purpose}{suffix}")
    if len(cluster) > max_length:
        digest = hashlib.sha256(cluster.encode()).hexdigest()[:_DIGEST]
        cluster = f"{cluster[: max_length - _DIGEST - 1]}-{digest}"
    return f"tenon-{cluster}-{purpose}{suffix}"


def queue(cluster: str, purpose: str, *, fifo: bool) -> str:
    """A queue's name; a FIFO queue's has to end in ``.fifo``."""
    return name(cluster, purpose, longest=QUEUE_LENGTH, suffix=".fifo" if fifo else "")


def function(cluster: str, purpose: str) -> str:
    """A function's name."""
    return name(cluster, purpose, longest=FUNCTION_LENGTH)
