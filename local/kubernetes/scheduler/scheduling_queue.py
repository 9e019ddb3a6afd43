"""kube-scheduler's queue: active pods by priority and time, pods in back-off, and unschedulable pods.

Source: ``pkg/scheduler/backend/queue`` of Kubernetes 1.36. A pod that is retried within its back-off waits in the
back-off queue, but the queue is popped as soon as no pod is active (SchedulerPopFromBackoffQ, on since 1.33): back-off
delays pods behind others, it does not let the scheduler wait. Only pods that failed without a reason of a plugin (no
node exists) wait for the end of their back-off.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.objects import Obj
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from local.kubernetes.scheduler.queueing_hints import IsWorthRequeuing

INITIAL_BACKOFF = timedelta(seconds=1)
MAX_BACKOFF = timedelta(seconds=10)
MAX_IN_UNSCHEDULABLE_PODS = timedelta(minutes=5)
"""Pods that were not retried for longer are retried without a reason."""
_FLUSH_INTERVAL = timedelta(seconds=30)
_BACKOFF_WINDOW = timedelta(seconds=1)
"""The end of a back-off is cut to whole seconds, and looked at every whole second."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SortKey = tuple[int, datetime, int]
"""Priority (negated), time of the last attempt or of arrival, and sequence: pods are scheduled in ascending order."""
_Entry = tuple[SortKey, int, str]
"""Sort key, ticket and uid; void unless the pod still has this ticket."""


class QueuedPod(MutableStruct):
    """A pending pod."""

    pod: Obj
    signature: PodSignature
    timestamp: datetime
    sequence: int = 0
    """Orders pods of the same time."""
    unschedulable_count: int = 0
    error_count: int = 0
    """Consecutive failures without a reason of a plugin."""
    backoff_end: datetime | None = None
    rejected_by: frozenset[str] = frozenset()
    message: str = ""
    """The last written message why it is unschedulable; "" before the first."""
    reported_at: datetime = _EPOCH
    fit_error: str = ""
    """The message of the last attempt, which kube-scheduler would have written."""
    ticket: int = 0
    """Its present place in the queue; other entries are void."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        uid: str = self.pod["metadata"]["uid"]
        return uid

    @property
    def sort_key(self) -> SortKey:
        """The pod's place among active pods."""
        return (-self.signature.priority, self.timestamp, self.sequence)


def backoff_duration(failures: int) -> timedelta:
    """How long a pod backs off after that many failures: 1 s, doubled each time, at most 10 s."""
    return min(INITIAL_BACKOFF * (1 << min(failures - 1, 10)), MAX_BACKOFF)


class SchedulingQueue:
    """All pending pods, each in one of the queues, or popped and not yet added again."""

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPod] = {}
        self._signatures: Counter[bytes] = Counter()
        self._active: list[_Entry] = []
        self._backoff: list[tuple[datetime, _Entry]] = []
        self._error_backoff: list[tuple[datetime, _Entry]] = []
        self._unschedulable: dict[tuple[bytes, frozenset[str]], dict[str, QueuedPod]] = {}
        """By signature and rejecting plugins, so that a change is compared once with pods that are alike."""
        self._unschedulable_since: deque[tuple[datetime, int, str]] = deque()
        """Time of the last attempt, ticket and uid of unschedulable pods, oldest first; may be void."""
        self._tickets = 0
        self._sequence = 0

    def has_signature(self, key: bytes) -> bool:
        """Whether a queued or popped pod has this signature."""
        return self._signatures[key] > 0

    def get(self, uid: str) -> QueuedPod | None:
        """The pod, if it is queued or popped."""
        return self._pods.get(uid)

    def add(self, pod: QueuedPod) -> None:
        """Add a new pod to the active pods."""
        self.remove(pod.uid)
        self._pods[pod.uid] = pod
        self._signatures[pod.signature.key] += 1
        self._set_timestamp(pod, pod.timestamp)
        self._activate(pod)

    def pop(self) -> QueuedPod | None:
        """Remove the first active pod; without one, the pod whose back-off ends first."""
        while self._active:
            _, ticket, uid = heapq.heappop(self._active)
            if (pod := self._valid(ticket, uid)) is not None:
                return self._popped(pod)
        while self._backoff:
            _, (_, ticket, uid) = heapq.heappop(self._backoff)
            if (pod := self._valid(ticket, uid)) is not None:
                return self._popped(pod)
        return None

    @property
    def has_active_pods(self) -> bool:
        """Whether ``pop`` has a pod."""
        while self._active and self._valid(*self._active[0][1:]) is None:
            heapq.heappop(self._active)
        self._drop_void(self._backoff)
        return bool(self._active or self._backoff)

    def add_unschedulable(self, pod: QueuedPod, rejected_by: frozenset[str], now: datetime) -> None:
        """Add a popped pod that these plugins rejected; without one, it is retried after its back-off."""
        pod.rejected_by = rejected_by
        self._set_timestamp(pod, now)
        if not rejected_by:
            pod.error_count += 1
            pod.backoff_end = _window(now + backoff_duration(pod.error_count))
            self._push(self._error_backoff, pod)
            return
        pod.unschedulable_count += 1
        pod.error_count = 0
        pod.backoff_end = _window(now + backoff_duration(pod.unschedulable_count))
        pod.ticket = self._next_ticket()
        self._unschedulable.setdefault((pod.signature.key, rejected_by), {})[pod.uid] = pod
        self._unschedulable_since.append((now, pod.ticket, pod.uid))

    def move(self, is_worth_requeuing: IsWorthRequeuing, now: datetime) -> None:
        """Retry the unschedulable pods that a change concerns; those in back-off come after all active ones."""
        moved = [
            key for key, pods in self._unschedulable.items() if is_worth_requeuing(_signature(pods.values()), key[1])
        ]
        for key in moved:
            for pod in self._unschedulable.pop(key).values():
                self._requeue(pod, now)

    def flush(self, now: datetime) -> None:
        """Retry the pods whose error back-off is over, and those that were not tried for 5 minutes."""
        window = _window(now)
        while self._error_backoff and self._error_backoff[0][0] < window:
            _, (_, ticket, uid) = heapq.heappop(self._error_backoff)
            if (pod := self._valid(ticket, uid)) is not None:
                self._activate(pod)
        while (due := self._leftover_due()) is not None and due <= now:
            _, _, uid = self._unschedulable_since.popleft()
            pod = self._pods[uid]
            self._remove_unschedulable(pod)
            self._requeue(pod, now)

    def due(self) -> datetime | None:
        """When ``flush`` has something to do; None: never."""
        self._drop_void(self._error_backoff)
        times = [self._leftover_due(), self._error_backoff[0][0] + _BACKOFF_WINDOW if self._error_backoff else None]
        return min((time for time in times if time is not None), default=None)

    def remove(self, uid: str) -> None:
        """Remove a pod, if it is queued or popped."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._signatures[pod.signature.key] -= 1
            self._remove_unschedulable(pod)
            pod.ticket = 0

    def _drop_void(self, backoff: list[tuple[datetime, _Entry]]) -> None:
        while backoff and self._valid(*backoff[0][1][1:]) is None:
            heapq.heappop(backoff)

    def _valid(self, ticket: int, uid: str) -> QueuedPod | None:
        pod = self._pods.get(uid)
        return pod if pod is not None and pod.ticket == ticket else None

    def _popped(self, pod: QueuedPod) -> QueuedPod:
        pod.ticket = 0
        return pod

    def _requeue(self, pod: QueuedPod, now: datetime) -> None:
        if pod.backoff_end is not None and pod.backoff_end >= _window(now):
            self._push(self._backoff, pod)
        else:
            self._activate(pod)

    def _activate(self, pod: QueuedPod) -> None:
        pod.ticket = self._next_ticket()
        heapq.heappush(self._active, (pod.sort_key, pod.ticket, pod.uid))

    def _push(self, backoff: list[tuple[datetime, _Entry]], pod: QueuedPod) -> None:
        pod.ticket = self._next_ticket()
        heapq.heappush(backoff, (pod.backoff_end or pod.timestamp, (pod.sort_key, pod.ticket, pod.uid)))

    def _remove_unschedulable(self, pod: QueuedPod) -> None:
        key = (pod.signature.key, pod.rejected_by)
        pods = self._unschedulable.get(key)
        if pods is not None and pods.pop(pod.uid, None) is not None and not pods:
            del self._unschedulable[key]

    def _leftover_due(self) -> datetime | None:
        """When the oldest unschedulable pod is retried: at the first of the checks, every 30 s, after 5 minutes."""
        while self._unschedulable_since:
            since, ticket, uid = self._unschedulable_since[0]
            if self._valid(ticket, uid) is not None:
                intervals = (since + MAX_IN_UNSCHEDULABLE_PODS - _EPOCH) // _FLUSH_INTERVAL + 1
                return _EPOCH + intervals * _FLUSH_INTERVAL
            self._unschedulable_since.popleft()
        return None

    def _set_timestamp(self, pod: QueuedPod, now: datetime) -> None:
        self._sequence += 1
        pod.timestamp, pod.sequence = now, self._sequence

    def _next_ticket(self) -> int:
        self._tickets += 1
        return self._tickets


def _window(time: datetime) -> datetime:
    return time.replace(microsecond=0)


def _signature(pods: Iterable[QueuedPod]) -> PodSignature:
    return next(iter(pods)).signature
