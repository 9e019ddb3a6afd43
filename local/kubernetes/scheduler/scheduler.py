"""The cluster's scheduler: gives pods without a node to the best node, or tells why there is none.

It keeps kube-scheduler's rules and words (docs/facts/kubernetes.md), and shares no placement code with Tenon: what
Tenon plans has to hold here too. A pod that found no place is tried again when a place opens for pods of its shape.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from local.kubernetes import kinds
from local.kubernetes.controllers.informer import Informer
from local.kubernetes.controllers.object_updates import CONFLICT, NOT_FOUND, emit, parsed, rewrite, with_condition
from local.kubernetes.conversion import typed
from local.kubernetes.errors import ApiError
from local.kubernetes.scheduler.cache import Board
from local.kubernetes.scheduler.node_info import Tenant
from local.kubernetes.scheduler.pod_signature import Shape, shape_of
from local.kubernetes.scheduler.scheduling_cycle import Search
from local.kubernetes.scheduler.volume_plugins import SELECTED_NODE, Storage, is_bound
from shared.api.kubernetes import Node, Pod
from shared.api.quantity import QuantityError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

NAME = "default-scheduler"
RETELL = timedelta(minutes=1)
"""A pod that waits is told a changed reason no more often than this."""

_STORAGE = frozenset({"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"})
_ENDED = frozenset({"Succeeded", "Failed"})

_Rank = tuple[int, datetime, str, str]
"""Priority (negated), creation, namespace, name."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A pod that needs a node."""

    pod: Obj
    shape: Shape
    rank: _Rank
    message: str = ""
    """What it was told last, "" before the first time."""


@dataclass(eq=False)
class _Queue:
    """The waiting pods of one shape. ``fresh`` are those that were told nothing yet."""

    search: Search
    waiting: dict[str, _Waiting] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    told_at: datetime | None = None
    order: list[tuple[_Rank, str]] | None = None
    """Rank and uid, sorted; may name pods that wait no more. None: to be made anew."""

    def by_rank(self) -> Iterator[tuple[_Rank, str]]:
        """The waiting pods, the first one first; pods may leave meanwhile."""
        if self.order is None or len(self.order) > 2 * len(self.waiting):
            self.order = sorted((waiting.rank, uid) for uid, waiting in self.waiting.items())
        return (entry for entry in self.order if entry[1] in self.waiting)


class Scheduler:
    """One step looks at what changed and places all that can be placed, highest priority and oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feed = Informer(
            store,
            kinds.NAMESPACES,
            kinds.NODES,
            kinds.STORAGE_CLASSES,
            kinds.PERSISTENT_VOLUMES,
            kinds.PERSISTENT_VOLUME_CLAIMS,
            kinds.CSI_NODES,
            kinds.PODS,
        )
        self._board = Board()
        self._storage = Storage()
        self._queues: dict[bytes, _Queue] = {}
        self._queued: dict[str, bytes] = {}
        self._reserved: dict[str, tuple[_Waiting, str]] = {}
        self._shapes: dict[str, tuple[Obj, Obj, Shape]] = {}
        self._written = False
        self._news = False

    def due(self) -> datetime | None:
        """Never by itself: places open only when something changes."""
        return None

    def step(self, now: datetime) -> bool:
        """Place what can be placed."""
        self._written = False
        before = self._board.revision
        for change in self._feed.take():
            self._learn(change, now)
        if not self._news and self._board.revision == before:
            return self._written
        self._news = False
        self._finish_reserved()
        self._place_all(now)
        for key in [key for key, queue in self._queues.items() if not queue.waiting]:
            del self._queues[key]
        return self._written

    def _place_all(self, now: datetime) -> None:
        """Give nodes to the pods whose shape has room somewhere, in order of rank; tell the others."""
        while hopeful := self._hopeful():
            full: set[bytes] = set()
            for _, uid, key in heapq.merge(*(_entries(key, self._queues[key]) for key in hopeful)):
                if key not in full and not self._attempt(uid, self._queues[key]):
                    full.add(key)
                    if len(full) == len(hopeful):
                        break
        for queue in self._queues.values():
            if queue.waiting:
                self._refuse(queue, now)

    def _hopeful(self) -> list[bytes]:
        """The shapes that have room somewhere; a pod that was just placed may have made it."""
        return [key for key, queue in self._queues.items() if queue.waiting and queue.search.best() is not None]

    def _learn(self, change: Change, now: datetime) -> None:
        plural, obj = change.kind.plural, change.object
        gone = change.type == "DELETED"
        if plural == "pods":
            self._learn_pod(obj, now, gone=gone)
        elif plural == "nodes":
            self._learn_node(obj, gone=gone)
        elif plural in _STORAGE:
            self._storage.record(plural, obj, gone=gone)
            self._news = True
        else:
            self._learn_namespace(obj, gone=gone)

    def _learn_node(self, obj: Obj, *, gone: bool) -> None:
        """Take a node's state; one that can't be read takes no pods."""
        name = obj["metadata"]["name"]
        if gone:
            self._board.drop_node(name)
            return
        try:
            self._board.put_node(typed(obj, Node))
        except (QuantityError, msgspec.ValidationError):
            self._board.drop_node(name)

    def _learn_namespace(self, obj: Obj, *, gone: bool) -> None:
        name, labels = obj["metadata"]["name"], obj["metadata"].get("labels") or {}
        before = self._board.namespaces.pop(name, None)
        if not gone:
            self._board.namespaces[name] = labels
        if before != self._board.namespaces.get(name):
            self._board.recount()
            for queue in self._queues.values():
                queue.search = Search(queue.search.shape, self._board, self._storage)

    def _learn_pod(self, pod: Obj, now: datetime, *, gone: bool) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        uid = meta["uid"]
        if gone or pod["status"].get("phase") in _ENDED:
            self._forget(uid)
            return
        terminating = "deletionTimestamp" in meta
        node = spec.get("nodeName")
        if not node and (terminating or spec.get("schedulerName") != NAME):
            self._forget(uid)
            return
        try:
            shape = self._shape(pod)
        except (QuantityError, msgspec.ValidationError) as error:
            self._forget(uid)
            self._tell(pod, "SchedulerError", str(error), now)
            return
        if node:
            self._unqueue(uid)
            self._reserved.pop(uid, None)
            self._board.put_pod(node, Tenant(uid, shape, terminating))
        elif gates := spec.get("schedulingGates"):
            names = " ".join(gate["name"] for gate in gates)
            self._tell(
                pod, "SchedulingGated", f"Scheduling is blocked due to non-empty scheduling gates [{names}]", now
            )
        elif uid not in self._reserved:
            rank = (-(spec.get("priority") or 0), parsed(meta["creationTimestamp"]), meta["namespace"], meta["name"])
            self._enqueue(uid, _Waiting(pod, shape, rank))

    def _enqueue(self, uid: str, waiting: _Waiting) -> None:
        """Let the pod wait with those of its shape; one that waits there already keeps what it was told."""
        key = waiting.shape.key
        if self._queued.get(uid) == key:
            before = self._queues[key].waiting[uid]
            self._queues[key].waiting[uid] = replace(waiting, message=before.message)
            return
        self._unqueue(uid)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(Search(waiting.shape, self._board, self._storage))
        self._queued[uid] = key
        queue.waiting[uid] = waiting
        queue.fresh.add(uid)
        queue.order = None
        self._news = True

    def _unqueue(self, uid: str) -> None:
        key = self._queued.pop(uid, None)
        if key is not None:
            queue = self._queues[key]
            del queue.waiting[uid]
            queue.fresh.discard(uid)

    def _shape(self, pod: Obj) -> Shape:
        """The pod's shape, made once for each state of its spec and labels."""
        uid, spec, labels = pod["metadata"]["uid"], pod["spec"], pod["metadata"].get("labels") or {}
        known = self._shapes.get(uid)
        if known is not None and known[0] is spec and known[1] == labels:
            return known[2]
        shape = shape_of(typed(pod, Pod))
        self._shapes[uid] = (spec, labels, shape)
        return shape

    def _forget(self, uid: str) -> None:
        self._unqueue(uid)
        self._reserved.pop(uid, None)
        self._shapes.pop(uid, None)
        self._board.drop_pod(uid)

    def _attempt(self, uid: str, queue: _Queue) -> bool:
        """Give the pod the best node. False if there is none."""
        place = queue.search.best()
        if place is None:
            return False
        waiting = queue.waiting[uid]
        self._unqueue(uid)
        self._board.put_pod(place.name, Tenant(uid, waiting.shape))
        unbound = self._storage.unbound(waiting.shape)
        if unbound:
            for claim in unbound:
                self._select_node(claim, place.name)
            self._reserved[uid] = (waiting, place.name)
        else:
            self._bind(uid, waiting, place.name)
        return True

    def _refuse(self, queue: _Queue, now: datetime) -> None:
        """Tell the pods why there is no place: new ones at once, the others now and then, and only what is new."""
        again = queue.told_at is None or now - queue.told_at >= RETELL
        told = list(queue.waiting) if again else sorted(queue.fresh)
        if not told:
            return
        message = queue.search.message()
        queue.told_at = now if again else queue.told_at
        queue.fresh.clear()
        for uid in told:
            waiting = queue.waiting[uid]
            if message == waiting.message:
                continue
            queue.waiting[uid] = replace(waiting, message=message)
            self._tell(waiting.pod, "Unschedulable", message, now)
            emit(
                self._store,
                waiting.pod,
                reason="FailedScheduling",
                message=message,
                now=now,
                component=NAME,
                warning=True,
            )

    def _tell(self, pod: Obj, reason: str, message: str, now: datetime) -> None:
        """Set PodScheduled=False with this reason."""

        def change(latest: Obj) -> Obj:
            status = latest["status"]
            conditions = with_condition(
                status.get("conditions") or [], "PodScheduled", status="False", reason=reason, message=message, now=now
            )
            return {**latest, "status": {**status, "conditions": conditions}}

        self._written = rewrite(self._store, kinds.PODS, pod, change) is not None or self._written

    def _select_node(self, claim: Obj, node: str) -> None:
        """Tell whoever makes the volume for which node it is wanted."""

        def change(latest: Obj) -> Obj:
            meta = latest["metadata"]
            return {
                **latest,
                "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), SELECTED_NODE: node}},
            }

        rewrite(self._store, kinds.PERSISTENT_VOLUME_CLAIMS, claim, change)
        self._written = True

    def _finish_reserved(self) -> None:
        """Bind the pods whose volumes have come; look for another node where the reserved one is gone or unfit."""
        for uid, (waiting, node) in list(self._reserved.items()):
            place = self._board.places.get(node)
            lost = place is None or bool(self._storage.refusal(waiting.shape))
            if place is not None and not lost:
                claims = [self._storage.claims[waiting.shape.namespace, name] for name in waiting.shape.claims]
                self._board.drop_pod(uid)
                unfit = self._storage.refusals(waiting.shape, place)
                self._board.put_pod(node, Tenant(uid, waiting.shape))
                if not unfit and not all(is_bound(claim) for claim in claims):
                    continue
                lost = bool(unfit)
            del self._reserved[uid]
            if lost:
                self._board.drop_pod(uid)
                self._enqueue(uid, waiting)
            else:
                self._bind(uid, waiting, node)

    def _bind(self, uid: str, waiting: _Waiting, node: str) -> None:
        meta = waiting.pod["metadata"]
        try:
            self._store.bind(meta["namespace"], meta["name"], node)
        except ApiError as error:
            if error.status not in {CONFLICT, NOT_FOUND}:
                raise
            # deleted, or bound by someone else: the store's next change says which
            self._board.drop_pod(uid)
            return
        self._written = True


def _entries(key: bytes, queue: _Queue) -> Iterator[tuple[_Rank, str, bytes]]:
    return ((rank, uid, key) for rank, uid in queue.by_rank())
