"""A plan: where waiting pods would go, and which nodes would go after that, with what it costs.

The same pure code that the functions decide by is asked, launches first: pods that found a place are taken to be
there when disruption is asked, as it is in a cluster some minutes later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from cli.cluster.observed_cluster import cost, running_cost, view_of, with_snapshot
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import condition
from shared.api.pods import is_pending, is_reschedulable
from shared.disruption import emptiness
from shared.disruption.budgets import BudgetTracker
from shared.disruption.command import EMPTY
from shared.disruption.methods import METHODS
from shared.scheduling.decision import Decision, Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from cli.cluster.observed_cluster import Facts, Prices
    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.cluster_state import ClusterState
    from shared.disruption.command import BlockedCandidate, Command
    from shared.launch.resolved_node_pools import ResolvedNodePools
    from shared.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A node whose time has not come: it goes at ``due`` if nothing changes until then."""

    node: str
    reason: str
    due: datetime


@dataclass(frozen=True, kw_only=True)
class Disruption:
    """What would go: actions in their order, what is kept and why, and whose time comes later.

    ``searched`` is how many sets of nodes consolidation asked about; ``ended`` whether it had seen all it wanted to.
    """

    actions: tuple[Command, ...] = ()
    refused: tuple[BlockedCandidate, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    ended: bool = True

    @property
    def savings(self) -> float:
        """USD per hour of all actions."""
        return sum(a.savings for a in self.actions)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes that go."""
        return tuple(node for a in self.actions for node in a.nodes)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``before`` is USD per hour, without the ``unpriced`` nodes; ``lost`` nodes are gone by assumption.

    ``launches`` holds new claims, pods that find room, and pods without a place.
    """

    before: float
    unpriced: int
    lost: tuple[str, ...] = ()
    launches: Decision = field(default_factory=Decision)
    disruption: Disruption = field(default_factory=Disruption)
    snapshot: Snapshot
    resolved_pools: ResolvedNodePools

    @property
    def bought(self) -> float:
        """USD per hour of what is launched."""
        return sum(c.cheapest.price for c in self.launches.new_node_claims)

    def after(self, prices: Prices) -> float:
        """USD per hour when all of it is done."""
        gone = set(self.lost)
        lost = cost((n for n in self.snapshot.nodes if n.metadata.name in gone), prices)[0]
        return self.before - lost + self.bought - self.disruption.savings


def make(
    facts: Facts,
    resolved_pools: ResolvedNodePools,
    *,
    lost: Collection[str] = (),
    should_stop: Callable[[], bool],
    disrupting: bool = True,
) -> Plan:
    """The plan for these facts. ``lost`` nodes are taken away, ``should_stop`` ends the search for savings."""
    snapshot = facts.snapshot
    before, unpriced = running_cost(snapshot, resolved_pools)
    launches = launched(facts, resolved_pools, lost=lost)
    disruption = Disruption()
    if disrupting:
        after = settled(snapshot, launches, lost)
        disruption = disrupted(with_snapshot(facts, after), resolved_pools, should_stop)
    return Plan(
        before=before,
        unpriced=unpriced,
        lost=tuple(sorted(lost)),
        launches=launches,
        disruption=disruption,
        snapshot=snapshot,
        resolved_pools=resolved_pools,
    )


def launched(facts: Facts, resolved_pools: ResolvedNodePools, *, lost: Collection[str] = ()) -> Decision:
    """Where every waiting pod goes, and those of lost nodes; whether or not the scheduler has looked at them yet."""
    snapshot = facts.snapshot
    view = view_of(facts, resolved_pools)
    leaving = frozenset(lost) | view.disrupting_nodes
    pods = frozenset(
        p.key
        for p in snapshot.pods
        if (is_pending(p) and not p.status.nominated_node_name) or (p.spec.node_name in leaving and is_reschedulable(p))
    )
    decision = schedule(
        Problem(
            snapshot=snapshot,
            instance_types=resolved_pools.instance_types,
            not_ready=resolved_pools.not_ready,
            leaving=leaving,
            pods=pods,
            policies=facts.policies,
        )
    )
    return replace(decision, pod_errors={**decision.pod_errors, **facts.unreadable})


def settled(snapshot: Snapshot, launches: Decision, lost: Collection[str]) -> Snapshot:
    """The cluster once the launches are done: pods are where they fit, and those on new machines out of sight."""
    gone = set(lost)
    where = {key: place for place, keys in launches.existing_nodes.items() for key in keys}
    elsewhere = {key for claim in launches.new_node_claims for key in claim.pods} | set(launches.pod_errors)
    nodes = {n.metadata.name for n in snapshot.nodes}
    pods = []
    for pod in snapshot.pods:
        key = pod.key
        if key in where and where[key] in nodes:
            spec = msgspec.structs.replace(pod.spec, node_name=where[key])
            pods.append(msgspec.structs.replace(pod, spec=spec))
        elif key not in elsewhere and key not in where and pod.spec.node_name not in gone:
            pods.append(pod)
    return replace(
        snapshot,
        pods=tuple(pods),
        nodes=tuple(n for n in snapshot.nodes if n.metadata.name not in gone),
        node_claims=tuple(c for c in snapshot.node_claims if c.status.node_name not in gone),
    )


def disrupted(facts: Facts, resolved_pools: ResolvedNodePools, should_stop: Callable[[], bool]) -> Disruption:
    """What disruption would do now: every method in its order, each on what the earlier ones leave."""
    view = observed(view_of(facts, resolved_pools))
    slots = BudgetTracker(view.snapshot, now=view.now)
    actions: list[Command] = []
    refused: list[BlockedCandidate] = []
    stopped = False

    def stop() -> bool:
        nonlocal stopped
        stopped = should_stop()
        return stopped

    waits = waiting(view)
    for method in METHODS:
        command = method.compute(view, slots, stop)
        actions += command.commands
        refused += command.blocked
        if command.commands:
            view = _without(view, {node for a in command.commands for node in a.nodes})
    acted = {node for a in actions for node in a.nodes}
    return Disruption(
        actions=tuple(actions),
        refused=tuple(r for r in refused if r.node not in acted),
        waiting=tuple(w for w in waits if w.node not in acted),
        ended=not stopped,
    )


def observed(view: ClusterState) -> ClusterState:
    """The view with the claims' ``Empty`` as disruption would note it; since the last pod came or went, where known."""
    changes = {o.claim.name: o for o in emptiness.empty_condition_changes(view)}
    if not changes:
        return view
    claims = []
    for claim in view.snapshot.node_claims:
        change = changes.get(claim.name)
        if change is None:
            claims.append(claim)
            continue
        since = _last_change(claim) or view.now
        claims.append(emptiness.with_empty_condition(claim, is_empty=change.is_empty, now=min(since, view.now)))
    return replace(view, snapshot=replace(view.snapshot, node_claims=tuple(claims)))


def _last_change(claim: NodeClaim) -> datetime | None:
    up = condition(claim.status.conditions, nodeclaim.INITIALIZED)
    times = [claim.status.last_pod_event_time, up.last_transition_time if up is not None else None]
    return max((t for t in times if t is not None), default=None)


def waiting(view: ClusterState) -> tuple[Waiting, ...]:
    """The empty nodes whose consolidateAfter isn't over."""
    found = []
    for candidate in emptiness.find_candidates(view):
        empty = condition(candidate.claim.status.conditions, nodeclaim.EMPTY)
        try:
            after = parse_duration(candidate.pool.spec.disruption.consolidate_after)
        except DurationError:
            continue
        if empty is None or empty.last_transition_time is None or after is None:
            continue
        due = empty.last_transition_time + after
        if due > view.now:
            found.append(Waiting(node=candidate.name, reason=EMPTY, due=due))
    return tuple(found)


def _without(view: ClusterState, nodes: Collection[str]) -> ClusterState:
    """The view once these nodes are gone; their pods have found places, which aren't looked for again."""
    snapshot = view.snapshot
    return replace(
        view,
        snapshot=replace(
            snapshot,
            pods=tuple(p for p in snapshot.pods if p.spec.node_name not in nodes),
            nodes=tuple(n for n in snapshot.nodes if n.metadata.name not in nodes),
            node_claims=tuple(c for c in snapshot.node_claims if c.status.node_name not in nodes),
        ),
    )


def pool_of(labels: Mapping[str, str]) -> str:
    """The NodePool that a node belongs to, or empty."""
    return labels.get(names.NODEPOOL, "")
