"""Room on full nodes: which pods wait for room that only their node can give, and which pods are evicted for them.

Two kinds of pods wait for one node: a DaemonSet's pod, which can only run there, and a running pod whose resize the
kubelet has deferred. The cheapest movable pods of the node are evicted for them, as few as make the room; they get a
place like all pending pods. Never evicted are pods of higher priority than the waiting one, pods that are not to be
disrupted or that nothing recreates, and pods that belong to the node. Pods that are younger than ten minutes are
evicted only where older ones don't make the room, so the same workload doesn't move from node to node.

What is counted is what kube-scheduler counts: a resized pod takes what it asks for, and a terminating pod is gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.kubernetes import RESIZE_PENDING
from shared.api.meta import condition
from shared.api.pause import paused_pools
from shared.api.pods import (
    controller,
    disruptions_allowed,
    is_daemon,
    is_protected,
    is_reschedulable,
    is_terminal,
    is_terminating,
    requests,
    waited,
)
from shared.api.quantity import CPU, MEMORY, PODS, QuantityError, add, format_quantity, parse_resources
from shared.base.struct import Struct
from shared.disruption.budgets import budget_problems, is_frozen
from shared.disruption.disruption_cost import pod_disruption_cost
from shared.disruption.eviction_choice import EvictablePod, cheapest_evictions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.api.quantity import Resources
    from shared.disruption.pod_disruption_budgets import PodDisruptionBudgets
    from shared.disruption.room_record import RoomRecord

MAKE_ROOM = "tenon.sh/make-room"
"""Annotation on a pod (or its DaemonSet's template) or a NodePool: "false" if no pods are evicted for it, or there."""
SETTLED_AFTER = timedelta(minutes=10)
"""A pod that was created later may replace one that was just evicted."""
_DEFERRED = "Deferred"
_LACKS_RESOURCES = ("Insufficient ", "Too many pods")
"""In kube-scheduler's message about a pod: its node lacks resources, and passes all the filters before that."""
_NODE_PRICE = 0.2
"""USD per hour of a node, for disruption costs: only their ratios matter here."""
_MICRO = 1_000_000
_UNSETTLED_COST = 1_000 * _MICRO
"""More than all settled pods of a node."""


class RoomPlan(Struct, kw_only=True):
    """What is done for a node's waiting pods.

    ``evict`` are the pods to evict for ``served``, those under a PodDisruptionBudget first. ``blocked`` are pods that
    get no room, each with the reason.
    """

    evict: tuple[Pod, ...] = ()
    served: tuple[Pod, ...] = ()
    blocked: tuple[tuple[Pod, str], ...] = ()


def required_node(pod: Pod) -> str:
    """The one node that the pod's required node affinity names, as the DaemonSet controller writes it; else ""."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None or len(required.node_selector_terms) != 1:
        return ""
    fields = required.node_selector_terms[0].match_fields
    values = [v for f in fields if f.key == "metadata.name" and f.operator == "In" for v in f.values]
    return values[0] if len(values) == 1 else ""


def is_waiting_daemon(pod: Pod) -> bool:
    """Whether the pod is a DaemonSet's and its node lacks the resources for it, by what kube-scheduler says.

    A nominated pod gets the place of pods that kube-scheduler preempts.
    """
    if pod.spec.node_name or pod.status.nominated_node_name or not is_daemon(pod):
        return False
    scheduled = condition(pod.status.conditions, "PodScheduled")
    return (
        not (is_terminal(pod) or is_terminating(pod))
        and scheduled is not None
        and scheduled.status == "False"
        and scheduled.reason == "Unschedulable"
        and any(text in scheduled.message for text in _LACKS_RESOURCES)
    )


def is_resize_deferred(pod: Pod) -> bool:
    """Whether the kubelet has deferred the pod's resize, because its node has no room now."""
    pending = condition(pod.status.conditions, RESIZE_PENDING)
    is_deferred = pending is not None and pending.status == "True" and pending.reason == _DEFERRED
    return is_deferred and bool(pod.spec.node_name) and not (is_terminal(pod) or is_terminating(pod))


def waiting_node(pod: Pod) -> str:
    """The node whose room the pod waits for; "" if it doesn't wait for one, or is not to get room by evictions."""
    if pod.metadata.annotations.get(MAKE_ROOM) == "false":
        return ""
    if is_resize_deferred(pod):
        return pod.spec.node_name
    return required_node(pod) if is_waiting_daemon(pod) else ""


def node_blocker(node: Node, claim: NodeClaim, pool: NodePool, *, now: datetime) -> str:
    """Why no pods of the node are evicted for room now; "" when they may be."""
    for owner in (node, claim):
        if is_protected(owner.metadata.annotations, since=owner.metadata.creation_timestamp, now=now):
            return f"{owner.kind} {owner.metadata.name} has annotation {names.DO_NOT_DISRUPT}"
    for pause in paused_pools((pool,), None, now=now).values():
        return pause.message
    if problems := budget_problems(pool):
        return f"NodePool {pool.name} allows no disruption until its budgets are mended: {'; '.join(problems)}"
    if is_frozen(pool, now=now):
        return f"the disruption budgets of NodePool {pool.name} allow no disruption now"
    return ""


def plan_room(
    node: Node,
    pods: Iterable[Pod],
    budgets: PodDisruptionBudgets,
    record: RoomRecord,
    *,
    now: datetime,
    blocker: str = "",
) -> RoomPlan:
    """The evictions that make room for the node's waiting pods, by priority, the longest waiting first.

    ``pods`` are the pods on the node, and those without a node that wait for it or are nominated for it. ``blocker``
    is the reason if none may be evicted.
    """
    pods = tuple(pods)
    planner = _Planner(node, pods, budgets, now=now)
    for pod in sorted((p for p in pods if waiting_node(p) == node.metadata.name), key=lambda p: _rank(p, now)):
        why = blocker
        if record.is_exhausted(pod.metadata.uid, now=now):
            why = "room was made for it three times in ten minutes, and it has not used it"
        planner.serve(pod, blocker=why)
    return planner.plan()


def _rank(pod: Pod, now: datetime) -> tuple[int, float, str]:
    return -(pod.spec.priority or 0), -waited(pod, now=now), pod.key


class _Planner:
    """Serves the waiting pods of a node in turn."""

    def __init__(self, node: Node, pods: Sequence[Pod], budgets: PodDisruptionBudgets, *, now: datetime) -> None:
        self._node = node
        self._budgets = budgets
        self._now = now
        self._requests = {pod.key: _requests(pod) for pod in pods}
        self._remaining = {p.key: p for p in pods if p.spec.node_name and not (is_terminal(p) or is_terminating(p))}
        self._nominated = [p for p in pods if not p.spec.node_name and p.status.nominated_node_name]
        try:
            self._allocatable = parse_resources(node.status.allocatable)
        except QuantityError:
            self._allocatable = {}
        self._placed: list[Pod] = []
        self._evicted: dict[str, Pod] = {}
        self._served: list[Pod] = []
        self._blocked: list[tuple[Pod, str]] = []

    def serve(self, pod: Pod, *, blocker: str) -> None:
        """Choose the pods to evict for this one, unless it has room or is itself evicted for another."""
        if pod.key in self._evicted:
            return
        lacking = self._lacking(pod)
        if lacking and not blocker:
            blocker = self._choose(pod, lacking)
            if not blocker:
                self._served.append(pod)
        if lacking and blocker:
            self._blocked.append((pod, f"node {self._node.metadata.name} lacks {_text(lacking)} for it: {blocker}"))
        else:
            self._placed.append(pod)

    def plan(self) -> RoomPlan:
        """The evictions for all that were served."""
        evicted = sorted(self._evicted.values(), key=lambda p: (not self._budgets.matching(p), p.key))
        return RoomPlan(evict=tuple(evicted), served=tuple(self._served), blocked=tuple(self._blocked))

    def _lacking(self, pod: Pod) -> Resources:
        """What the node lacks for the pod, in addition to the pods that stay and those that were served before."""
        nominated = [p for p in self._nominated if p.key != pod.key and _priority(p) >= _priority(pod)]
        counted = {p.key: p for p in (*self._remaining.values(), *self._placed, *nominated, pod)}
        taken = add(*(self._requests[key] for key in counted if key not in self._evicted))
        return {
            name: short
            for name, amount in self._requests[pod.key].items()
            if amount > 0 and (short := taken.get(name, 0) - self._allocatable.get(name, 0)) > 0
        }

    def _choose(self, pod: Pod, lacking: Resources) -> str:
        """Add the cheapest evictions that free what is lacking; why there are none, or ""."""
        kept = {p.key for p in self._placed} | {pod.key}
        movable: list[EvictablePod] = []
        unmovable: list[str] = []
        allowed: dict[str, int] = {}
        for candidate in self._remaining.values():
            if candidate.key in kept or candidate.key in self._evicted or not is_reschedulable(candidate):
                continue
            if why := _eviction_blocker(candidate, pod, self._budgets, now=self._now):
                unmovable.append(why)
            else:
                movable.append(self._evictable(candidate, allowed))
        for evicted in self._evicted.values():
            budget = self._budget(evicted)
            if budget in allowed:
                allowed[budget] -= 1
        chosen = cheapest_evictions(movable, lacking, allowed=allowed)
        if chosen is None:
            return _no_set(movable, unmovable, lacking)
        self._evicted |= {key: self._remaining[key] for key in chosen}
        return ""

    def _evictable(self, pod: Pod, allowed: dict[str, int]) -> EvictablePod:
        budget = self._budget(pod)
        if budget:
            allowed[budget] = disruptions_allowed(self._budgets.matching(pod)[0])
        cost = round(_MICRO * pod_disruption_cost(pod, self._share(pod) * _NODE_PRICE))
        created = pod.metadata.creation_timestamp
        if created is not None and self._now - created < SETTLED_AFTER:
            cost += _UNSETTLED_COST
        return EvictablePod(key=pod.key, frees=self._requests[pod.key], cost=cost, budget=budget)

    def _budget(self, pod: Pod) -> str:
        """The name of the PodDisruptionBudget that counts the pod's eviction; "" without one."""
        budgets = self._budgets.counting(pod)
        return f"{budgets[0].metadata.namespace}/{budgets[0].metadata.name}" if budgets else ""

    def _share(self, pod: Pod) -> float:
        """The share of the node that the pod takes, of the resource that it takes most of."""
        taken = self._requests[pod.key]
        return max(taken.get(name, 0) / (self._allocatable.get(name) or 1) for name in (CPU, MEMORY))


def _eviction_blocker(candidate: Pod, waiting: Pod, budgets: PodDisruptionBudgets, *, now: datetime) -> str:
    """Why the pod can't be evicted for the waiting one; "" when it can."""
    since = candidate.status.start_time or candidate.metadata.creation_timestamp
    if is_protected(candidate.metadata.annotations, since=since, now=now):
        return f"pod {candidate.key} has annotation {names.DO_NOT_DISRUPT}"
    if controller(candidate.metadata) is None:
        return f"pod {candidate.key} has no controller to recreate it"
    if _priority(candidate) > _priority(waiting):
        return f"pod {candidate.key} has a higher priority"
    blocker = budgets.eviction_blocker(candidate)
    return blocker.message if blocker is not None else ""


def _no_set(movable: Sequence[EvictablePod], unmovable: Sequence[str], lacking: Resources) -> str:
    """Why no evictions free what is lacking."""
    total = add(*(pod.frees for pod in movable))
    freed = {name: total.get(name, 0) for name in lacking}
    scope = f"its {len(movable)} movable pods free {_text(freed)} at most" if movable else "none of its pods is movable"
    if not unmovable:
        return scope
    rest = f" (and {len(unmovable) - 1} more)" if len(unmovable) > 1 else ""
    return f"{scope}, and {min(unmovable)}{rest}"


def _text(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_quantity(name, amounts[name])}" for name in sorted(amounts))


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _requests(pod: Pod) -> Resources:
    """The pod's requests; one with invalid requests counts only as a pod."""
    try:
        return requests(pod)
    except QuantityError:
        return {PODS: 1}


def pods_by_node(pods: Iterable[Pod], nodes: Collection[str]) -> dict[str, list[Pod]]:
    """By node, the pods that :func:`plan_room` needs: those on it, waiting for it, or nominated for it."""
    by_node: dict[str, list[Pod]] = {name: [] for name in nodes}
    for pod in pods:
        name = pod.spec.node_name or pod.status.nominated_node_name or waiting_node(pod)
        if name in by_node:
            by_node[name].append(pod)
    return by_node
