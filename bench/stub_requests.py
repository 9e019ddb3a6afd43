"""What a client asks of the stub API server: requests and bytes by verb and kind, counted where they are sent."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from shared.cluster.watched_objects import BOOKMARK_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

_GROUPED = "apis"
_WITH_SUBRESOURCE = 3
_SHORT = str(BOOKMARK_TIMEOUT)
Counts = dict[str, dict[str, int]]
"""``requests``, ``first`` (requests that begin a list: no later page) and ``bytes`` of bodies by verb and kind."""


class Requests:
    """Counts by names such as ``list pods`` and ``patch nodeclaims/status``. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, dict[str, int]] = defaultdict(lambda: {"requests": 0, "first": 0, "bytes": 0})

    def add(self, method: str, path: str, query: Mapping[str, str]) -> str:
        """Count a request; returns the name under which its bytes are added."""
        name = request_name(method, path, query)
        with self._lock:
            self._counts[name]["requests"] += 1
            self._counts[name]["first"] += "continue" not in query
        return name

    def sent(self, name: str, size: int) -> None:
        """Count bytes of a response."""
        with self._lock:
            self._counts[name]["bytes"] += size

    def take(self) -> Counts:
        """The counts since the last time."""
        with self._lock:
            counts = {name: dict(self._counts[name]) for name in sorted(self._counts)}
            self._counts.clear()
        return counts


def request_name(method: str, path: str, query: Mapping[str, str]) -> str:
    """The verb of the Kubernetes API, and the kind with what its field selector asks for.

    >>> request_name("GET", "/api/v1/pods", {"fieldSelector": "status.phase!=Failed"})
    'list pods'
    >>> request_name("GET", "/api/v1/pods", {"fieldSelector": "spec.nodeName=,status.phase!=Failed"})
    'list pods without a node'
    >>> request_name("PATCH", "/apis/karpenter.sh/v1/nodeclaims/claim-1/status", {})
    'patch nodeclaims/status'
    """
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == _GROUPED else parts[2:]
    if parts[0] == "namespaces" and len(parts) >= _WITH_SUBRESOURCE:
        parts = parts[2:]
    kind = "/".join([parts[0], *parts[2:]])
    if method != "GET":
        return f"{ {'POST': 'create'}.get(method, method.lower()) } {kind}"
    if "watch" in query:
        return f"watch {kind}{', until its bookmark' if query.get('timeoutSeconds') == _SHORT else ''}"
    if len(parts) > 1:
        return f"get {kind}"
    return f"list {kind}{_selected(query.get('fieldSelector', ''))}"


def _selected(fields: str) -> str:
    node = fields.partition("spec.nodeName=")
    if fields == "metadata.name=-":
        return ", none of them"
    if not node[1]:
        return ""
    return " without a node" if node[2].startswith(",") else " of a node"
