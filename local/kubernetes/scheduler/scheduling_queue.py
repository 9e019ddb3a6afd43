"""kube-scheduler's queue: the pending pods, grouped by signature, in order of priority and age."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from local.kubernetes.objects import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from local.kubernetes.objects import Obj
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from local.kubernetes.scheduler.scheduling_cycle import SchedulingCycle

SortKey = tuple[int, datetime, str, str]
"""Priority (negated), creation time, namespace, name: pods are scheduled in ascending order."""


@dataclass(frozen=True, eq=False)
class QueuedPod:
    """A pending pod."""

    pod: Obj
    signature: PodSignature
    sort_key: SortKey
    message: str = ""
    """The last message why it is unschedulable; "" before the first."""

    @classmethod
    def of(cls, pod: Obj, signature: PodSignature) -> QueuedPod:
        """The pod with its place in the order."""
        meta = pod["metadata"]
        created = parse_timestamp(meta["creationTimestamp"])
        sort_key = (-(pod["spec"].get("priority") or 0), created, meta["namespace"], meta["name"])
        return cls(pod, signature, sort_key)


@dataclass(eq=False)
class SignatureQueue:
    """The pending pods with one signature. ``new`` are those without a message."""

    cycle: SchedulingCycle
    pods: dict[str, QueuedPod] = field(default_factory=dict)
    new: set[str] = field(default_factory=set)
    reported_at: datetime | None = None
    _order: list[tuple[SortKey, str]] | None = None
    """Sort key and uid; may name pods that are no longer pending. None: to be sorted again."""

    def add(self, uid: str, pod: QueuedPod) -> None:
        """Add a pending pod."""
        self.pods[uid] = pod
        self.new.add(uid)
        self._order = None

    def remove(self, uid: str) -> None:
        """Remove a pod."""
        del self.pods[uid]
        self.new.discard(uid)

    def in_order(self) -> Iterator[tuple[SortKey, str]]:
        """The pods in order; they may be removed meanwhile."""
        if self._order is None or len(self._order) > 2 * len(self.pods):
            self._order = sorted((pod.sort_key, uid) for uid, pod in self.pods.items())
        return (entry for entry in self._order if entry[1] in self.pods)


class SchedulingQueue:
    """All pending pods by their signature."""

    def __init__(self, new_cycle: Callable[[PodSignature], SchedulingCycle]) -> None:
        self._new_cycle = new_cycle
        self._queues: dict[bytes, SignatureQueue] = {}
        self._signature_keys: dict[str, bytes] = {}

    @property
    def queues(self) -> Iterable[SignatureQueue]:
        """The queues that have pods."""
        return [queue for queue in self._queues.values() if queue.pods]

    def add(self, uid: str, pod: QueuedPod) -> bool:
        """Add a pod, or update a queued one, which keeps its message. True if it was not queued with this signature."""
        key = pod.signature.key
        if self._signature_keys.get(uid) == key:
            pods = self._queues[key].pods
            pods[uid] = replace(pod, message=pods[uid].message)
            return False
        self.remove(uid)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SignatureQueue(self._new_cycle(pod.signature))
        self._signature_keys[uid] = key
        queue.add(uid, pod)
        return True

    def remove(self, uid: str) -> None:
        """Remove a pod, if it is queued."""
        key = self._signature_keys.pop(uid, None)
        if key is not None:
            self._queues[key].remove(uid)

    def reset_cycles(self) -> None:
        """Start all cycles again, because the pods that their plugins select have changed."""
        for queue in self._queues.values():
            queue.cycle = self._new_cycle(queue.cycle.signature)

    def schedulable(self) -> list[SignatureQueue]:
        """The queues whose pods have a feasible node now."""
        return [queue for queue in self.queues if queue.cycle.select_node() is not None]

    def remove_empty(self) -> None:
        """Forget the signatures that no pending pod has."""
        for key in [key for key, queue in self._queues.items() if not queue.pods]:
            del self._queues[key]


def in_order(queues: list[SignatureQueue]) -> Iterator[tuple[str, SignatureQueue]]:
    """The pods of several queues in order, by uid with their queue; they may be removed meanwhile."""
    merged = heapq.merge(*(_entries(index, queue) for index, queue in enumerate(queues)))
    return ((uid, queues[index]) for _, uid, index in merged)


def _entries(index: int, queue: SignatureQueue) -> Iterator[tuple[SortKey, str, int]]:
    return ((sort_key, uid, index) for sort_key, uid in queue.in_order())
