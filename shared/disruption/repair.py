"""Node repair: replaces nodes that are unhealthy for longer than is tolerated, in NodePools whose owner enabled it.

It is the first method: a broken node takes the budgets' next place. One command replaces one node, its replacement is
Initialized first, and the drain is bounded, because the kubelet may no longer answer. Rules: Karpenter 1.15's repair
(pkg/controllers/disruption/repair.go; reference: docs/facts/karpenter-1.15.md, rows repair-*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import duration_or_none
from shared.api.meta import EventReason, is_true
from shared.api.reboot import ended_at
from shared.base.struct import Struct, with_fields
from shared.disruption import terminate_first
from shared.disruption.candidates import pod_blocker, registered_candidates
from shared.disruption.command import REBOOT, UNHEALTHY, Blocker, Command, DisruptionWarning, MethodResult
from shared.disruption.disruption_cost import eviction_cost
from shared.disruption.disruption_queue import queue_entry
from shared.disruption.repair_action import reboot_warnings, repair_action
from shared.disruption.repair_limit import pools_over_limit, read_limit
from shared.disruption.repair_policies import eligible_times, repair_decision, repair_matches
from shared.disruption.simulated_scheduling import simulate_scheduling
from shared.scheduling.static_pools import active_claims, plan_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime, timedelta

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.command import BlockedCandidate
    from shared.disruption.disruption_state import DisruptionState
    from shared.disruption.repair_policies import RepairDecision
    from shared.scheduling.decision import PlannedNodeClaim

REASON = UNHEALTHY
NEEDS_PRICES = True
REPAIR_BLOCKED = EventReason("NodeRepairBlocked")
INVALID_ANNOTATION = EventReason("InvalidAnnotation")


class _Plan(Struct, kw_only=True):
    """The replacements of a node; or what it waits for, or why they can't be staged."""

    claims: tuple[PlannedNodeClaim, ...] = ()
    waits_for: Blocker | None = None
    failure: Blocker | None = None


class UnhealthyNode(Struct, kw_only=True):
    """A candidate, what its conditions call for, and what is done about it: ``action``."""

    candidate: Candidate
    decision: RepairDecision
    action: str

    @property
    def rank(self) -> tuple[float, float, str]:
        """The lowest is repaired first."""
        return -self.decision.score, sum(eviction_cost(p) for p in self.candidate.pods), self.candidate.name

    @property
    def grace_period(self) -> timedelta | None:
        """How long the drain may take: the shorter of the policies' and the NodeClaim's; None: it isn't bounded."""
        own = duration_or_none(self.candidate.claim.spec.termination_grace_period)
        periods = (self.decision.grace_period, own)
        return min((p for p in periods if p is not None), default=None)


def disruption_message(state: DisruptionState, candidate: Candidate) -> str:
    """Why the node is to be repaired; empty when it isn't."""
    decision = _decision(candidate.claim, candidate.node, state.now) if candidate.pool.has_node_repair else None
    return decision.message if decision is not None else ""


def unhealthy_nodes(state: DisruptionState) -> tuple[UnhealthyNode, ...]:
    """The nodes whose conditions are tolerated no longer, blocked or not, in the order in which they are repaired."""
    decisions = ((c, d) for c in _candidates(state) if (d := _decision(c.claim, c.node, state.now)) is not None)
    unhealthy = (UnhealthyNode(candidate=c, decision=d, action=repair_action(state, c, d)) for c, d in decisions)
    return tuple(sorted(unhealthy, key=lambda node: node.rank))


def find_candidates(state: DisruptionState) -> tuple[Candidate, ...]:
    """The nodes of :func:`unhealthy_nodes`."""
    return tuple(node.candidate for node in unhealthy_nodes(state))


def compute(state: DisruptionState, budgets: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """One command, for the first unhealthy node that nothing blocks."""
    pools = tuple(p for p in state.snapshot.node_pools if p.has_node_repair)
    shifted = state.snapshot.shifted_zones
    nodes = (n for n in state.snapshot.nodes if n.metadata.labels.get(names.ZONE) not in shifted)
    over_limit = pools_over_limit(pools, nodes)
    unhealthy = unhealthy_nodes(state)
    blocked: list[BlockedCandidate] = []
    commands: tuple[Command, ...] = ()
    for node in unhealthy:
        why_not = blocker(state, budgets, node, over_limit)
        outcome = _repaired(state, node) if why_not is None else node.candidate.blocked(why_not, reason=UNHEALTHY)
        if isinstance(outcome, Command):
            commands = (with_fields(outcome, grace_period=node.grace_period, repair_action=node.action),)
            if _needs_budget(node.candidate):
                budgets.consume(node.candidate.pool.name)
            break
        blocked.append(outcome)
    return MethodResult(
        commands=commands,
        blocked=tuple(blocked),
        warnings=(
            *_limit_warnings(unhealthy, over_limit),
            *_annotation_warnings(pools),
            *reboot_warnings(state, ((n.candidate, n.decision) for n in unhealthy)),
        ),
        requeue_at=_next_due(state),
    )


def validate(command: Command, state: DisruptionState, _budgets: BudgetTracker) -> str:
    """Why the command can't be executed; empty when it can."""
    unhealthy = {node.candidate.claim.name: node.candidate for node in unhealthy_nodes(state)}
    for removal in command.removals:
        candidate = unhealthy.get(removal.claim)
        if candidate is None:
            return f"node {removal.node} is no longer unhealthy"
        if (veto := _veto(candidate.node, candidate.claim)) is not None:
            return f"node {removal.node}: {veto.message}"
    return ""


def withdrawn(state: DisruptionState) -> Mapping[str, str]:
    """The claims that wait for the replacements of a repair that isn't needed any more: why, by name."""
    nodes = {n.metadata.name: n for n in state.snapshot.nodes}
    queued = ((c, nodes.get(c.status.node_name)) for c in state.snapshot.node_claims if _is_being_repaired(c))
    reasons = {claim.name: _withdrawal(state, claim, node) for claim, node in queued if node is not None}
    return {name: why for name, why in reasons.items() if why}


def _is_being_repaired(claim: NodeClaim) -> bool:
    entry = queue_entry(claim) if claim.metadata.deletion_timestamp is None else None
    return entry is not None and entry.reason == UNHEALTHY


def _withdrawal(state: DisruptionState, claim: NodeClaim, node: Node) -> str:
    pool = state.pools.get(claim.metadata.labels.get(names.NODEPOOL, ""))
    if pool is None or not pool.has_node_repair:
        return "node repair was turned off"
    if _decision(claim, node, state.now) is None:
        return f"node {node.metadata.name} is healthy again"
    veto = _veto(node, claim)
    return veto.message if veto is not None else ""


def _decision(claim: NodeClaim, node: Node, now: datetime) -> RepairDecision | None:
    """What the node's conditions call for; a reboot that has just ended has its time to help."""
    return repair_decision(repair_matches(node), now=now, not_before=ended_at(claim))


def _candidates(state: DisruptionState) -> Iterator[Candidate]:
    return (c for c in registered_candidates(state) if c.pool.has_node_repair)


def _needs_budget(candidate: Candidate) -> bool:
    """No pod depends on a node that isn't initialized."""
    return is_true(candidate.claim.status.conditions, nodeclaim.INITIALIZED)


def blocker(
    state: DisruptionState, budgets: BudgetTracker, node: UnhealthyNode, over_limit: Mapping[str, str]
) -> Blocker | None:
    """What keeps the node from being repaired, whatever its pods need; None when nothing does."""
    candidate = node.candidate
    if (veto := _veto(candidate.node, candidate.claim)) is not None:
        return veto
    if node.grace_period is None and (pod := pod_blocker(state, candidate)) is not None:
        return Blocker(message=f"{pod.message}, and no terminationGracePeriod ends that", by=pod.by)
    pool = candidate.pool.name
    if pool in over_limit:
        return Blocker(message=over_limit[pool], by=f"NodePool {pool}")
    return budgets.blocker(pool, UNHEALTHY) if _needs_budget(candidate) else None


def _veto(node: Node, claim: NodeClaim) -> Blocker | None:
    """The annotation of the node or its claim that forbids the repair; None without one."""
    for owner, by in ((node, f"Node {node.metadata.name}"), (claim, f"NodeClaim {claim.name}")):
        if owner.metadata.annotations.get(names.DO_NOT_REPAIR) == "true":
            return Blocker(message=f"annotation {names.DO_NOT_REPAIR} is set", by=by)
    return None


def _repaired(state: DisruptionState, node: UnhealthyNode) -> Command | BlockedCandidate:
    """The command that reboots or replaces the node, or why there is none. A reboot keeps the instance: no savings."""
    if node.action != REBOOT:
        return _replaced(state, node)
    return Command(removals=(node.candidate.removal(reason=UNHEALTHY, message=node.decision.message),))


def _replaced(state: DisruptionState, node: UnhealthyNode) -> Command | BlockedCandidate:
    """The command that replaces the node, or why there is none; it goes first where its NodePool allows that."""
    candidate, message = node.candidate, node.decision.message
    is_static = candidate.pool.spec.replicas is not None
    plan = _static_plan(state, candidate) if is_static else _dynamic_plan(state, candidate)
    if plan.waits_for is not None:
        return candidate.blocked(plan.waits_for, reason=UNHEALTHY)
    if plan.failure is not None:
        return terminate_first.without_replacement(state, candidate, plan.failure, reason=UNHEALTHY, message=message)
    return Command(
        removals=(candidate.removal(reason=UNHEALTHY, message=message),),
        replacements=plan.claims,
        savings=(state.price(candidate.claim) or 0.0) - sum(c.cheapest.effective_price for c in plan.claims),
    )


def _dynamic_plan(state: DisruptionState, candidate: Candidate) -> _Plan:
    simulation = simulate_scheduling(state, [candidate])
    # The room of CapacityBuffers on a broken node is no use: it is bought elsewhere.
    if simulation.unschedulable:
        return _Plan(failure=simulation.blocker(candidate))
    if simulation.uninitialized_nodes:
        name = simulation.uninitialized_nodes[0]
        message = f"its pods would go to node {name}, which isn't initialized yet"
        return _Plan(waits_for=Blocker(message=message, by=f"Node {name}"))
    return _Plan(claims=simulation.node_claims)


def _static_plan(state: DisruptionState, candidate: Candidate) -> _Plan:
    """One more node of the NodePool, within its limits."""
    pool, by = candidate.pool, f"NodePool {candidate.pool.name}"
    replicas, count = pool.spec.replicas or 0, len(active_claims(candidate.pool, state.snapshot, ()))
    if count > replicas:
        return _Plan(waits_for=Blocker(message="the NodePool is scaled down, or replaces another node", by=by))
    # What is free is the missing replica's.
    if terminate_first.is_allowed(candidate) and count < min(replicas, terminate_first.node_limit(pool)):
        return _Plan(waits_for=Blocker(message="the NodePool lacks a node, which is launched first", by=by))
    claims, why_not = plan_nodes(pool, 1, state.snapshot, state.instance_types, state.not_ready)
    if claims:
        return _Plan(claims=claims)
    return _Plan(failure=Blocker(message=f"no replacement can be launched: {why_not}", by=by))


def _limit_warnings(unhealthy: Iterable[UnhealthyNode], over_limit: Mapping[str, str]) -> Iterator[DisruptionWarning]:
    """That nodes aren't repaired because too many are unhealthy: on each of them, its claim, and the NodePool."""
    held = [n.candidate for n in unhealthy if n.candidate.pool.name in over_limit]
    refs = {str(owner.ref): (owner.ref, c.pool.name) for c in held for owner in (c.pool, c.node, c.claim)}
    for ref, pool in refs.values():
        yield DisruptionWarning(ref=ref, reason=REPAIR_BLOCKED, message=over_limit[pool])


def _annotation_warnings(pools: Iterable[NodePool]) -> Iterator[DisruptionWarning]:
    for pool in pools:
        if problem := read_limit(pool)[1]:
            yield DisruptionWarning(ref=pool.ref, reason=INVALID_ANNOTATION, message=problem)


def _next_due(state: DisruptionState) -> datetime | None:
    """When the toleration of the next condition is over."""
    times = (at for c in _candidates(state) for at in eligible_times(repair_matches(c.node), ended_at(c.claim)))
    return min((at for at in times if at > state.now), default=None)
