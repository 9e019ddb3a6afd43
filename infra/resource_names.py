"""The names that operators read in consoles, logs and alarms: ``tenon-<cluster>-<purpose>``.

Said, not made up by CloudFormation, because whoever reads a log line at night should know what it is about. A cluster's
name that is too long is cut, and told apart by a hash.
"""

from __future__ import annotations

import hashlib

QUEUE_LENGTH = 80
FUNCTION_LENGTH = 64
_DIGEST = 8


def name(cluster: str, purpose: str, *, longest: int, suffix: str = "") -> str:
    """The name of one of a cluster's resources, at most ``longest`` characters with its suffix."""
    room = longest - len(f"tenon--{purpose}{suffix}")
    if len(cluster) > room:
        digest = hashlib.sha256(cluster.encode()).hexdigest()[:_DIGEST]
        cluster = f"{cluster[: room - _DIGEST - 1]}-{digest}"
    return f"tenon-{cluster}-{purpose}{suffix}"


def queue(cluster: str, purpose: str, *, fifo: bool) -> str:
    """A queue's name; a FIFO queue's has to end in ``.fifo``."""
    return name(cluster, purpose, longest=QUEUE_LENGTH, suffix=".fifo" if fifo else "")


def function(cluster: str, purpose: str) -> str:
    """A function's name."""
    return name(cluster, purpose, longest=FUNCTION_LENGTH)
