"""Pods that are resized in place: the kubelet allocates what they ask for as soon as the node has room.

A resize is allocated a second after it was asked for, and actuated a second later. While the other pods' allocations
leave no room it is deferred, and tried again when a pod leaves; one that the node can never hold is infeasible.
Source: kubernetes ``pkg/kubelet/allocation/allocation_manager.go``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from local.kubernetes import kinds
from local.kubernetes.conditions import with_condition
from local.kubernetes.conversion import convert
from local.kubernetes.object_updates import update
from shared.api.kubernetes import RESIZE_PENDING, PodSpec
from shared.api.pods import spec_requests
from shared.api.quantity import add, fits, parse_resources, subtract

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store
    from shared.api.quantity import Resources

DELAY = timedelta(seconds=1)
"""Until a resize is looked at, and again until it is actuated."""
IN_PROGRESS = "PodResizeInProgress"


class Kubelet(Protocol):
    """What is needed of a kubelet: its node's name, its store, its pods by uid, and whether it has stopped."""

    store: Store
    stopped: bool
    pods: dict[str, Obj]

    @property
    def name(self) -> str:
        """The node's name."""
        ...


class PodResizes:
    """The allocations of all kubelets' pods; ``at`` runs an action at a time."""

    def __init__(self, at: Callable[[datetime, Callable[[datetime], None]], None]) -> None:
        self._at = at
        self._allocated: dict[str, Obj] = {}
        """By uid, the pod's spec with the resources that the kubelet has allocated."""
        self._scheduled: set[str] = set()

    def sync(self, kubelet: Kubelet, pod: Obj, now: datetime) -> None:
        """Remember a new pod's resources, and look at a resize that hasn't been seen."""
        uid = pod["metadata"]["uid"]
        allocated = self._allocated.setdefault(uid, pod["spec"])
        known = pod["status"].get("conditions") or []
        if _resources(allocated) != _resources(pod["spec"]) and not _is_pending(known, pod):
            self._schedule(kubelet, uid, now)

    def remove_pod(self, kubelet: Kubelet, uid: str, now: datetime) -> None:
        """Forget a pod that has left, and look at the deferred resizes of its node."""
        self._allocated.pop(uid, None)
        for remaining, pod in kubelet.pods.items():
            if _resources(self._allocated_spec(remaining, pod)) != _resources(pod["spec"]):
                self._schedule(kubelet, remaining, now)

    def _schedule(self, kubelet: Kubelet, uid: str, now: datetime) -> None:
        if uid not in self._scheduled:
            self._scheduled.add(uid)
            self._at(now + DELAY, lambda at: self._resize(kubelet, uid, at))

    def _resize(self, kubelet: Kubelet, uid: str, now: datetime) -> None:
        self._scheduled.discard(uid)
        pod = kubelet.pods.get(uid)
        node = kubelet.store.find(kinds.NODES, kubelet.name)
        if pod is None or node is None or kubelet.stopped or "deletionTimestamp" in pod["metadata"]:
            return
        before, wanted = self._allocated[uid], pod["spec"]
        reason = self._blocked(kubelet, uid, wanted, parse_resources(node["status"]["allocatable"]))
        if reason:
            update(kubelet.store, kinds.PODS, pod, lambda latest: _pending(latest, before, reason, now))
            return
        self._allocated[uid] = wanted
        update(kubelet.store, kinds.PODS, pod, lambda latest: _allocated(latest, wanted, before, now))
        self._at(now + DELAY, lambda at: self._actuate(kubelet, pod, wanted, at))

    def _blocked(self, kubelet: Kubelet, uid: str, wanted: Obj, allocatable: Resources) -> str:
        """Why the node can't give the pod what it wants: the reason of the condition; "" if it can."""
        allocated = [self._allocated_spec(u, pod) for u, pod in kubelet.pods.items() if u != uid]
        free = subtract(allocatable, add(*(_requests(spec) for spec in allocated)))
        if not fits(_requests(wanted), allocatable):
            return "Infeasible"
        return "" if fits(_requests(wanted), free) else "Deferred"

    def _allocated_spec(self, uid: str, pod: Obj) -> Obj:
        spec: Obj = self._allocated.get(uid) or pod["spec"]
        return spec

    @staticmethod
    def _actuate(kubelet: Kubelet, pod: Obj, wanted: Obj, now: datetime) -> None:
        if not kubelet.stopped and pod["metadata"]["uid"] in kubelet.pods:
            update(kubelet.store, kinds.PODS, pod, lambda latest: _with_statuses(latest, wanted, wanted, {}, now))


def _is_pending(conditions: list[Obj], pod: Obj) -> bool:
    """Whether the kubelet has deferred or refused this very resize."""
    generation = pod["metadata"].get("generation")
    return any(c["type"] == RESIZE_PENDING and c.get("observedGeneration") == generation for c in conditions)


def _pending(pod: Obj, before: Obj, reason: str, now: datetime) -> Obj:
    return _with_statuses(pod, before, before, {RESIZE_PENDING: reason}, now)


def _allocated(pod: Obj, wanted: Obj, before: Obj, now: datetime) -> Obj:
    return _with_statuses(pod, wanted, before, {IN_PROGRESS: ""}, now)


def _with_statuses(pod: Obj, allocated: Obj, actual: Obj, reasons: Mapping[str, str], now: datetime) -> Obj:
    """The pod with what its containers are allocated and have, and these of the resize conditions, by reason."""
    status = pod["status"]
    conditions = [c for c in status.get("conditions") or [] if c["type"] not in {RESIZE_PENDING, IN_PROGRESS}]
    for type_, reason in reasons.items():
        conditions = with_condition(conditions, type_, status="True", reason=reason, now=now)
        conditions[-1]["observedGeneration"] = pod["metadata"].get("generation")
    by_name, actual_by_name = _resources(allocated), _resources(actual)
    statuses = [
        {
            **container,
            "allocatedResources": (by_name.get(container["name"]) or {}).get("requests") or {},
            "resources": actual_by_name.get(container["name"]) or {},
        }
        for container in status.get("containerStatuses") or []
    ]
    return {**pod, "status": {**status, "conditions": conditions, "containerStatuses": statuses}}


def _resources(spec: Obj) -> dict[str, Obj]:
    """The resources of the containers, by name."""
    return {container["name"]: container.get("resources") or {} for container in spec.get("containers") or []}


def _requests(spec: Obj) -> Resources:
    return spec_requests(convert(spec, PodSpec))
