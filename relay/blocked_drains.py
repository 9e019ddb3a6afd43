"""Which drains wait, and when what holds one frees itself. Pure: changes and times in, names of claims out.

A drain that a budget or a protected pod holds goes on by a delayed message, up to a quarter of an hour later
(shared/termination/requeue.py); Karpenter would ask again within ten seconds. So the relay says when asking is worth
it: a budget over the node's pods has room again, is changed or gone; a pod there ended, lost its protection, its health
(the eviction API lets unready pods go more easily) or its labels. Only drains that would sleep on are woken.

What changes to and fro must not cost an invocation each time. All drains are woken together, some seconds apart; and
what has woken them in vain does so again after twice as long each time, a minute at most. That a pod begins to leave
shows that its budget did not do so in vain.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from relay.watched_kinds import Change, Changed, Protection, Watched, WatchedBudget, WatchedNodeClaim, WatchedPod
from shared.api.selectors import SelectorError, matches
from shared.cluster import resources
from shared.termination import requeue

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.meta import LabelSelector
    from shared.cluster.resources import Resource

NEAR = timedelta(seconds=5)
"""A drain that is looked at this soon anyway isn't woken."""
SPACING = timedelta(seconds=3)
"""Between two wake-ups, whoever they are for."""
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(seconds=60)
_UNPROTECTED = Protection()


class _Cause(NamedTuple):
    """What has changed: a kind of object, and its name; the relay's own absence has none."""

    kind: str
    key: str = ""


_ABSENCE = _Cause("absence")


class _Pod(NamedTuple):
    """What of a pod that hasn't ended bears on the drain of its node."""

    node: str
    leaving: bool
    ready: bool
    protection: Protection
    labels: dict[str, str]


class _Budget(NamedTuple):
    version: tuple[str, int]
    has_room: bool
    selector: LabelSelector | None


@dataclass
class _Drain:
    """A claim that is being deleted. ``freed`` is what has changed since it was last woken."""

    node: str = ""
    next_look: datetime | None = None
    freed: set[_Cause] = field(default_factory=set)

    def sleeps(self, at: datetime) -> bool:
        return self.next_look is not None and self.next_look - at > NEAR


@dataclass
class _Pause:
    """How long a cause, which has woken drains before, must wait until it does again."""

    until: datetime
    length: timedelta


class BlockedDrains:
    """What is being drained, and what might hold it. Not thread-safe."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._budgets: dict[str, _Budget] = {}
        self._drains: dict[str, _Drain] = {}
        self._at: dict[str, _Drain] = {}
        self._pauses: dict[_Cause, _Pause] = {}
        self._not_before: datetime | None = None

    def see(self, change: Change) -> None:
        """Take note of a change of a pod, a budget or a claim; other kinds are passed over."""
        resource = change.resource
        if isinstance(change, Changed):
            if change.gone:
                self._gone(resource, change.object.key)
            else:
                self._seen(change.object)
            return
        for key in self._known(resource) - {obj.key for obj in change.objects}:
            self._gone(resource, key)
        for obj in change.objects:
            self._seen(obj)

    def take(self, now: datetime) -> tuple[str, ...]:
        """The claims whose drains are worth a look now; each is told once."""
        woken = sorted(name for name, drain in self._drains.items() if self._moment(drain, now) == now)
        causes = {cause for name in woken for cause in self._drains[name].freed if self._ripe(cause, now) == now}
        for name in woken:
            self._drains[name].freed.clear()
        if woken:
            self._not_before = now + SPACING
            self._pauses = {c: p for c, p in self._pauses.items() if now <= p.until + LONGEST_PAUSE}
        for cause in causes:
            before = self._pauses.get(cause)
            length = FIRST_PAUSE if before is None else min(before.length * 2, LONGEST_PAUSE)
            self._pauses[cause] = _Pause(until=now + length, length=length)
        return tuple(woken)

    def due(self, now: datetime) -> datetime | None:
        """When there is somebody to wake next, as things stand now; never before now."""
        moments = (self._moment(drain, now) for drain in self._drains.values())
        return min((moment for moment in moments if moment is not None), default=None)

    def _moment(self, drain: _Drain, now: datetime) -> datetime | None:
        """When the drain is to be woken: now or later; None if it needn't be."""
        if not drain.freed:
            return None
        moment = min(self._ripe(cause, now) for cause in drain.freed)
        if self._not_before is not None:
            moment = max(moment, self._not_before)
        return moment if drain.sleeps(moment) else None

    def _ripe(self, cause: _Cause, now: datetime) -> datetime:
        """When the cause may wake drains: now or later."""
        pause = self._pauses.get(cause)
        return now if pause is None else max(now, pause.until)

    def _known(self, resource: Resource) -> set[str]:
        if resource == resources.PODS:
            return set(self._pods)
        if resource == resources.POD_DISRUPTION_BUDGETS:
            return set(self._budgets)
        return set(self._drains) if resource == resources.NODE_CLAIMS else set()

    def _seen(self, obj: Watched) -> None:
        if isinstance(obj, WatchedPod):
            self._pod(obj)
        elif isinstance(obj, WatchedBudget):
            self._budget(obj)
        elif isinstance(obj, WatchedNodeClaim):
            self._claim(obj)

    def _gone(self, resource: Resource, key: str) -> None:
        if resource == resources.PODS:
            self._ended(key)
        elif resource == resources.POD_DISRUPTION_BUDGETS:
            before = self._budgets.pop(key, None)
            if before is not None:
                self._free_covered(key, before)
        elif resource == resources.NODE_CLAIMS:
            self._over(key)

    def _claim(self, claim: WatchedNodeClaim) -> None:
        if claim.metadata.deletion_timestamp is None:
            self._over(claim.key)
            return
        # one that hasn't begun waits for a decision about its pods, which nothing that frees itself brings sooner
        next_look = requeue.requeue_at(claim.metadata.annotations) if claim.has_drain else None
        drain = self._drains.get(claim.key)
        if drain is None:
            # it sleeps since before the relay was there, and nobody saw what has changed meanwhile
            drain = self._drains[claim.key] = _Drain(freed={_ABSENCE} if next_look is not None else set())
        self._leave(drain)
        drain.node, drain.next_look = claim.status.node_name, next_look
        self._at[drain.node] = drain

    def _over(self, claim: str) -> None:
        drain = self._drains.pop(claim, None)
        if drain is not None:
            self._leave(drain)

    def _leave(self, drain: _Drain) -> None:
        if self._at.get(drain.node) is drain:
            del self._at[drain.node]

    def _pod(self, pod: WatchedPod) -> None:
        if not pod.spec.node_name or pod.is_finished:
            self._ended(pod.key)
            return
        key = pod.key
        before = self._pods.get(key)
        after = _Pod(
            node=sys.intern(pod.spec.node_name),
            leaving=pod.metadata.deletion_timestamp is not None,
            ready=pod.is_ready,
            protection=_UNPROTECTED if pod.metadata.annotations == _UNPROTECTED else pod.metadata.annotations,
            labels=pod.metadata.labels,
        )
        if before is not None and before.node != after.node:
            # another pod of the same name, and the end of the first went unseen
            self._ended(key)
            before = None
        self._pods[key] = after
        if before is None:
            self._on[after.node].add(key)
        elif after.leaving:
            if not before.leaving:
                self._leaves(key, before)
        elif before != after and (before.protection, before.labels, before.ready) != (
            after.protection,
            after.labels,
            before.ready and after.ready,
        ):
            self._free(after.node, key)

    def _ended(self, key: str) -> None:
        before = self._pods.pop(key, None)
        if before is None:
            return
        there = self._on[before.node]
        there.discard(key)
        if not there:
            del self._on[before.node]
        self._free(before.node, key)

    def _budget(self, budget: WatchedBudget) -> None:
        before = self._budgets.get(budget.key)
        after = _Budget(
            version=(budget.metadata.uid, budget.metadata.generation),
            has_room=budget.has_room,
            selector=budget.spec.selector,
        )
        self._budgets[budget.key] = after
        if before is None:
            return
        if before.version != after.version:
            self._free_covered(budget.key, before)
        if after.has_room and (not before.has_room or before.version != after.version):
            self._free_covered(budget.key, after)

    def _free(self, node: str, pod: str) -> None:
        """What has changed of the pod may let its node's drain go on."""
        if node in self._at:
            self._at[node].freed.add(_Cause(resources.PODS.kind, pod))

    def _free_covered(self, key: str, budget: _Budget) -> None:
        """The budget may let pods that it covers go."""
        for node, drain in self._at.items():
            if any(_covers(key, budget, pod, self._pods[pod]) for pod in self._on.get(node, ())):
                drain.freed.add(_Cause(resources.POD_DISRUPTION_BUDGETS.kind, key))

    def _leaves(self, key: str, pod: _Pod) -> None:
        """A pod leaves a node that is drained: the budgets that cover it didn't wake anybody in vain."""
        if pod.node in self._at:
            for cause in list(self._pauses):
                budget = self._budgets.get(cause.key) if cause.kind == resources.POD_DISRUPTION_BUDGETS.kind else None
                if budget is not None and _covers(cause.key, budget, key, pod):
                    del self._pauses[cause]


def _covers(name: str, budget: _Budget, key: str, pod: _Pod) -> bool:
    """Whether the budget is asked when the pod is to leave. Both are named ``namespace/name``."""
    if pod.leaving or name.partition("/")[0] != key.partition("/")[0]:
        return False
    try:
        return matches(budget.selector, pod.labels)
    except SelectorError:
        # no server accepts such a budget; to look once too often is the lesser error
        return True
