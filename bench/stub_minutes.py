"""What changes in the stub cluster, minute by minute: kubelets' reports, and pods that are replaced.

A watch gets the changes since its resourceVersion, and then those that happen while it is open, at random times of the
same rates. That decides whether a client can prove that it is up to date.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import threading
import time
from typing import TYPE_CHECKING, Any

from bench.stub_objects import node, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT_MINUTES = 5
"""A kubelet reports its node's status this often, if it is as before (``nodeStatusReportFrequency``)."""
OTHER_KINDS = 10
"""Resource versions of other kinds' changes in a minute."""
BEFORE_TIMEOUT, BOOKMARK_TICK = 2.0, 1.25
"""A bookmark is due that many seconds before a watch's time-out, and sent at the next of the ticks of these seconds
(apiserver/pkg/storage/cacher)."""
_ENDS = ("MODIFIED", "MODIFIED", "DELETED")
"""A pod is deleted, its containers end, and its phase is final, with which it leaves a watch of unfinished pods."""
_STARTS = ("ADDED", "MODIFIED", "MODIFIED", "MODIFIED")
"""Its successor is created, bound, its containers are created, and it is Ready."""
EVENTS_OF_A_REPLACEMENT = len(_ENDS) + len(_STARTS)
"""Events of a watch of unfinished pods for each replaced pod (kubernetes.io, "Pod Lifecycle")."""


class Minutes:
    """The changes of a cluster of that size. Thread-safe but for :meth:`pass_one`."""

    def __init__(self, nodes: int, pods: int, version: int) -> None:
        self.version = version
        self.pending: list[bytes] = []
        """The pods without a node."""
        self._nodes = nodes
        self._pods = itertools.cycle(range(pods))
        self._reporting = itertools.cycle(range(nodes))
        self._pending_numbers: list[int] = []
        self._fresh = itertools.count(-1, -1)
        self._pod_log: list[tuple[int, bytes]] = []
        self._node_log: list[tuple[int, bytes]] = []
        """Version and event, which is made before it is asked for: a watch must not wait for this process."""
        self._pods_a_second = 0.0
        self._lock = threading.Lock()

    def pass_one(self, *, replaced: int, pending: int) -> None:
        """A minute in which that many pods are replaced, and that many others wait for new nodes at its end."""
        self._node_log = [self._reported(next(self._reporting)) for _ in range(self._nodes // REPORT_MINUTES)]
        self._pod_log = []
        for number in itertools.islice(self._pods, replaced):
            self._pod_log += [self._logged(kind, number) for kind in _ENDS]
            self._pod_log += [self._logged(kind, number, has_node=kind != "ADDED") for kind in _STARTS]
        self._pod_log += [self._logged("DELETED", number) for number in self._pending_numbers]
        self._pending_numbers = list(itertools.islice(self._fresh, pending))
        self.pending = []
        for number in self._pending_numbers:
            created = self._pod(number, version=self._next())
            self._pod_log.append((self.version, event("ADDED", created)))
            self.pending.append(json.dumps(created).encode())
        self._pods_a_second = replaced * EVENTS_OF_A_REPLACEMENT / 60
        with self._lock:
            self.version += OTHER_KINDS

    def events(self, plural: str, since: int, *, timeout: int) -> Iterator[bytes]:
        """The changes after that version; then those of the next seconds, as they happen, and a bookmark."""
        is_of_pods = plural == "pods"
        log = self._pod_log if is_of_pods else self._node_log
        yield from (line for version, line in log if version > since)
        a_second = self._pods_a_second if is_of_pods else self._nodes / REPORT_MINUTES / 60
        chance = random.Random(since)  # noqa: S311 (arrivals)
        ends = time.monotonic() + timeout
        bookmark = ends - BEFORE_TIMEOUT + chance.uniform(0, BOOKMARK_TICK)
        while (now := time.monotonic()) < ends:
            happens = now + chance.expovariate(a_second) if a_second else math.inf
            time.sleep(max(min(happens, bookmark, ends) - now, 0))
            if happens <= min(bookmark, ends):
                version = self._next()
                yield event("MODIFIED", self._pod(0, version=version) if is_of_pods else self._node(0, version))
            elif bookmark <= ends:
                bookmark = math.inf
                yield event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def _logged(self, kind: str, number: int, *, has_node: bool = True) -> tuple[int, bytes]:
        version = self._next()
        return version, event(kind, self._pod(number, version=version, has_node=has_node))

    def _reported(self, number: int) -> tuple[int, bytes]:
        version = self._next()
        return version, event("MODIFIED", self._node(number, version))

    def _next(self) -> int:
        with self._lock:
            self.version += 1
            return self.version

    def _pod(self, number: int, *, version: int, has_node: bool = True) -> dict[str, Any]:
        obj = pod(number, nodes=self._nodes, version=version)
        if number >= 0 and not has_node:
            del obj["spec"]["nodeName"]
            obj["status"] = {"phase": "Pending"}
        return obj

    @staticmethod
    def _node(number: int, version: int) -> dict[str, Any]:
        obj = node(number)
        obj["metadata"]["resourceVersion"] = str(version)
        return obj


def event(kind: str, obj: dict[str, Any]) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"
