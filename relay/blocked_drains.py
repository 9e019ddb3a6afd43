"""Which blocked drains may continue, and when to say so. Pure: changes and times in, names of NodeClaims out.

A drain that is blocked by a PodDisruptionBudget or a do-not-disrupt pod is requeued with a delay of up to a quarter of
an hour (``shared.termination.requeue``); Karpenter would retry within ten seconds. So the relay sends a hint when a
retry may succeed: a budget over the node's pods allows a disruption again, was changed or deleted; a pod there ended,
lost its do-not-disrupt annotation, its readiness (the eviction API evicts unready pods more easily) or its labels. Only
drains whose next attempt is some time away are woken.

Flapping must not cost an invocation each time. So all drains are woken together, some seconds apart, and a cause that
has woken drains without progress waits twice as long before it does so again, a minute at most. When a pod starts to
terminate, the budgets that cover it did not wake its drain for nothing, and their backoff is reset.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from relay.watched_kinds import (
    Change,
    DoNotDisrupt,
    Watched,
    WatchedBudget,
    WatchedNodeClaim,
    WatchedPod,
    updates,
)
from shared.api.selectors import SelectorError, matches
from shared.base.struct import MutableStruct
from shared.cluster import resources
from shared.termination import requeue

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.meta import LabelSelector
    from shared.cluster.resources import Resource

IMMINENT = timedelta(seconds=5)
"""A drain whose next attempt is this close isn't woken."""
WAKE_INTERVAL = timedelta(seconds=3)
"""The shortest time between two wake-ups, whichever drains they are for."""
INITIAL_BACKOFF = timedelta(seconds=5)
MAX_BACKOFF = timedelta(seconds=60)
_NO_ANNOTATIONS = DoNotDisrupt()


class _Cause(NamedTuple):
    """The object whose change may unblock a drain: its kind and key. The start of the relay has no key."""

    kind: str
    key: str = ""


_RELAY_START = _Cause("relay start")


class _PodState(NamedTuple):
    """The fields of a running pod that matter to the drain of its node."""

    node: str
    terminating: bool
    ready: bool
    do_not_disrupt: DoNotDisrupt
    labels: dict[str, str]


class _BudgetState(NamedTuple):
    version: tuple[str, int]
    allows_disruption: bool
    selector: LabelSelector | None


class _Drain(MutableStruct):
    """A NodeClaim that is being deleted. ``causes`` are the changes since the drain was last woken."""

    node: str = ""
    next_attempt: datetime | None = None
    causes: set[_Cause] = set()

    def is_waiting(self, at: datetime) -> bool:
        return self.next_attempt is not None and self.next_attempt - at > IMMINENT


class _Backoff(MutableStruct):
    """How long a cause that has woken drains before waits until it may do so again."""

    until: datetime
    length: timedelta


class BlockedDrains:
    """The drains in progress, and the pods and budgets that may block them. Not thread-safe."""

    def __init__(self) -> None:
        self._pods: dict[str, _PodState] = {}
        self._pods_by_node: defaultdict[str, set[str]] = defaultdict(set)
        self._budgets: dict[str, _BudgetState] = {}
        self._drains: dict[str, _Drain] = {}
        self._drain_by_node: dict[str, _Drain] = {}
        self._backoffs: dict[_Cause, _Backoff] = {}
        self._next_wake: datetime | None = None

    def observe(self, change: Change) -> None:
        """Update the state by a change of a pod, a budget or a NodeClaim; other kinds are ignored."""
        for key, obj in updates(change, self._known_keys):
            if obj is None:
                self._deleted(change.resource, key)
            else:
                self._updated(obj)

    def take_unblocked(self, now: datetime) -> tuple[str, ...]:
        """The NodeClaims whose drains should be retried now; each is returned once."""
        woken = sorted(name for name, drain in self._drains.items() if self._wake_time(drain, now) == now)
        causes = {cause for name in woken for cause in self._drains[name].causes if self._effective(cause, now) == now}
        for name in woken:
            self._drains[name].causes.clear()
        if woken:
            self._next_wake = now + WAKE_INTERVAL
            self._backoffs = {c: b for c, b in self._backoffs.items() if now <= b.until + MAX_BACKOFF}
        for cause in causes:
            before = self._backoffs.get(cause)
            length = INITIAL_BACKOFF if before is None else min(before.length * 2, MAX_BACKOFF)
            self._backoffs[cause] = _Backoff(until=now + length, length=length)
        return tuple(woken)

    def due(self, now: datetime) -> datetime | None:
        """When the next drain should be woken, by the current state; never before ``now``."""
        wake_times = (self._wake_time(drain, now) for drain in self._drains.values())
        return min((wake_time for wake_time in wake_times if wake_time is not None), default=None)

    def _wake_time(self, drain: _Drain, now: datetime) -> datetime | None:
        """When to wake the drain: now or later; None if that isn't needed."""
        if not drain.causes:
            return None
        wake_time = min(self._effective(cause, now) for cause in drain.causes)
        if self._next_wake is not None:
            wake_time = max(wake_time, self._next_wake)
        return wake_time if drain.is_waiting(wake_time) else None

    def _effective(self, cause: _Cause, now: datetime) -> datetime:
        """When the cause may wake drains: now, or after its backoff."""
        backoff = self._backoffs.get(cause)
        return now if backoff is None else max(now, backoff.until)

    def _known_keys(self, resource: Resource) -> set[str]:
        if resource == resources.PODS:
            return set(self._pods)
        if resource == resources.POD_DISRUPTION_BUDGETS:
            return set(self._budgets)
        return set(self._drains) if resource == resources.NODE_CLAIMS else set()

    def _updated(self, obj: Watched) -> None:
        if isinstance(obj, WatchedPod):
            self._pod_updated(obj)
        elif isinstance(obj, WatchedBudget):
            self._budget_updated(obj)
        elif isinstance(obj, WatchedNodeClaim):
            self._node_claim_updated(obj)

    def _deleted(self, resource: Resource, key: str) -> None:
        if resource == resources.PODS:
            self._pod_ended(key)
        elif resource == resources.POD_DISRUPTION_BUDGETS:
            before = self._budgets.pop(key, None)
            if before is not None:
                self._budget_may_unblock(key, before)
        elif resource == resources.NODE_CLAIMS:
            self._drain_ended(key)

    def _node_claim_updated(self, claim: WatchedNodeClaim) -> None:
        if claim.metadata.deletion_timestamp is None:
            self._drain_ended(claim.key)
            return
        # A drain that hasn't started waits for a scheduling decision, which no change here brings forward.
        next_attempt = requeue.requeue_at(claim.metadata.annotations) if claim.is_draining else None
        drain = self._drains.get(claim.key)
        if drain is None:
            # It has waited since before the relay started, so a change may have been missed.
            drain = self._drains[claim.key] = _Drain(causes={_RELAY_START} if next_attempt is not None else set())
        self._remove_from_node(drain)
        drain.node, drain.next_attempt = claim.status.node_name, next_attempt
        self._drain_by_node[drain.node] = drain

    def _drain_ended(self, claim: str) -> None:
        drain = self._drains.pop(claim, None)
        if drain is not None:
            self._remove_from_node(drain)

    def _remove_from_node(self, drain: _Drain) -> None:
        if self._drain_by_node.get(drain.node) is drain:
            del self._drain_by_node[drain.node]

    def _pod_updated(self, pod: WatchedPod) -> None:
        if not pod.spec.node_name or pod.is_finished:
            self._pod_ended(pod.key)
            return
        key = pod.key
        before = self._pods.get(key)
        annotations = pod.metadata.annotations
        after = _PodState(
            node=sys.intern(pod.spec.node_name),
            terminating=pod.metadata.deletion_timestamp is not None,
            ready=pod.is_ready,
            do_not_disrupt=_NO_ANNOTATIONS if annotations == _NO_ANNOTATIONS else annotations,
            labels=pod.metadata.labels,
        )
        if before is not None and before.node != after.node:
            # Another pod of the same name: the end of the first was missed.
            self._pod_ended(key)
            before = None
        self._pods[key] = after
        if before is None:
            self._pods_by_node[after.node].add(key)
        elif after.terminating:
            if not before.terminating:
                self._reset_backoffs(key, before)
        elif _may_be_evictable_now(before, after):
            self._pod_may_unblock(after.node, key)

    def _pod_ended(self, key: str) -> None:
        before = self._pods.pop(key, None)
        if before is None:
            return
        pods_on_node = self._pods_by_node[before.node]
        pods_on_node.discard(key)
        if not pods_on_node:
            del self._pods_by_node[before.node]
        self._pod_may_unblock(before.node, key)

    def _budget_updated(self, budget: WatchedBudget) -> None:
        before = self._budgets.get(budget.key)
        after = _BudgetState(
            version=(budget.metadata.uid, budget.metadata.generation),
            allows_disruption=budget.allows_disruption,
            selector=budget.spec.selector,
        )
        self._budgets[budget.key] = after
        if before is None:
            return
        if before.version != after.version:
            self._budget_may_unblock(budget.key, before)
        if after.allows_disruption and (not before.allows_disruption or before.version != after.version):
            self._budget_may_unblock(budget.key, after)

    def _pod_may_unblock(self, node: str, pod: str) -> None:
        """Record that a change of the pod may unblock the drain of its node."""
        if node in self._drain_by_node:
            self._drain_by_node[node].causes.add(_Cause(resources.PODS.kind, pod))

    def _budget_may_unblock(self, key: str, budget: _BudgetState) -> None:
        """Record that a change of the budget may unblock the drains of nodes with pods that it covers."""
        for node, drain in self._drain_by_node.items():
            if any(_covers(key, budget, pod, self._pods[pod]) for pod in self._pods_by_node.get(node, ())):
                drain.causes.add(_Cause(resources.POD_DISRUPTION_BUDGETS.kind, key))

    def _reset_backoffs(self, key: str, pod: _PodState) -> None:
        """A pod on a draining node starts to terminate: its budgets did not wake the drain for nothing."""
        if pod.node in self._drain_by_node:
            for cause in list(self._backoffs):
                budget = self._budgets.get(cause.key) if cause.kind == resources.POD_DISRUPTION_BUDGETS.kind else None
                if budget is not None and _covers(cause.key, budget, key, pod):
                    del self._backoffs[cause]


def _may_be_evictable_now(before: _PodState, after: _PodState) -> bool:
    """Whether annotations or labels changed, or the pod became unready."""
    became_unready = before.ready and not after.ready
    return became_unready or (before.do_not_disrupt, before.labels) != (after.do_not_disrupt, after.labels)


def _covers(budget_key: str, budget: _BudgetState, pod_key: str, pod: _PodState) -> bool:
    """Whether the eviction of the pod needs the budget's permission. Keys are ``namespace/name``."""
    if pod.terminating or budget_key.partition("/")[0] != pod_key.partition("/")[0]:
        return False
    try:
        return matches(budget.selector, pod.labels)
    except SelectorError:
        # No API server accepts such a budget; a retry too many is the smaller error.
        return True
