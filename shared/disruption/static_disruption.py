"""Static pools (``replicas``): removes surplus nodes, and replaces expired and drifted ones by nodes of the same pool.

Their number doesn't follow pods, so their nodes are neither empty nor underutilized. A pool that is scaled down removes
NodeClaims without a node first, then empty nodes, then those with the lowest disruption cost, and last those that are
blocked, by do-not-disrupt for example. Replacements are made one at a time, so that the pool never lacks more than one
node; they must fit within the pool's limits in addition to the old node. Where they can't, the old node may go first
(:mod:`shared.disruption.terminate_first`), once all replicas are initialized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shared.api import labels as names
from shared.base.plurals import plural
from shared.disruption import drift, expiration, graceful_disruption, terminate_first
from shared.disruption.candidates import disruption_blocker, static_candidates
from shared.disruption.command import SURPLUS, BlockedCandidate, Blocker, Command, MethodResult, Removal
from shared.disruption.disruption_cost import eviction_cost
from shared.disruption.disruption_queue import is_queued, replaced_claims
from shared.scheduling.static_pools import active_claims, plan_nodes, static_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState

REASON = SURPLUS
NEEDS_PRICES = True
_MESSAGE = "the NodePool has more nodes than replicas"


class _RemovalRank(NamedTuple):
    """The lowest goes first when a pool is scaled down."""

    has_node: bool
    is_blocked: bool
    has_pods: bool
    cost: float


_NO_NODE = _RemovalRank(has_node=False, is_blocked=False, has_pods=False, cost=0.0)


def surplus_claims(state: DisruptionState) -> tuple[NodeClaim, ...]:
    """The claims that static pools have beyond their replicas, by pool, in the order in which they are removed."""
    ranks = {c.claim.name: _removal_rank(state, c) for c in static_candidates(state)}
    replaced = replaced_claims(state.snapshot.node_claims)
    surplus: list[NodeClaim] = []
    for pool in static_pools(state.snapshot):
        if pool.name in state.paused:
            continue
        claims = active_claims(pool, state.snapshot, replaced)
        ordered = sorted(claims, key=lambda c: (ranks.get(c.name, _NO_NODE), -(state.price(c) or 0.0), c.name))
        count = max(0, len(claims) - (pool.spec.replicas or 0))
        surplus += [c for c in ordered if not is_queued(c)][:count]
    shifted = state.snapshot.shifted_zones
    if shifted:
        return tuple(c for c in surplus if c.metadata.labels.get(names.ZONE) not in shifted)
    return tuple(surplus)


def _removal_rank(state: DisruptionState, candidate: Candidate) -> _RemovalRank:
    is_blocked = disruption_blocker(state, candidate) is not None
    return _RemovalRank(
        has_node=True,
        is_blocked=is_blocked,
        has_pods=bool(candidate.pods),
        cost=sum(eviction_cost(p) for p in candidate.pods),
    )


def find_candidates(state: DisruptionState) -> tuple[Candidate, ...]:
    """The nodes of static pools that are surplus, expired or drifted, sorted by claim."""
    surplus = {c.name for c in surplus_claims(state)}
    return tuple(c for c in static_candidates(state) if c.claim.name in surplus or _replacement_reason(state, c)[0])


def compute(state: DisruptionState, budgets: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """Removes surplus nodes within budgets; replaces one node a pool where no node is surplus or being disrupted."""
    surplus = surplus_claims(state)
    without_node = tuple(_remove_without_node(c) for c in surplus if not c.status.node_name)
    candidates = {c.claim.name: c for c in static_candidates(state)}
    removable = [(candidates[c.name], _MESSAGE) for c in surplus if c.name in candidates]
    scaled_down = graceful_disruption.compute(state, budgets, removable, reason=SURPLUS)
    commands = [*without_node, *scaled_down.commands]
    blocked = list(scaled_down.blocked)
    queued = (c for c in state.snapshot.node_claims if is_queued(c))
    busy_pools = {c.metadata.labels.get(names.NODEPOOL) for c in (*surplus, *queued)}
    for pool in static_pools(state.snapshot):
        if pool.name not in busy_pools:
            nodes = [c for c in candidates.values() if c.pool.name == pool.name]
            command, blocked_nodes = _replace_one(state, budgets, pool, nodes)
            commands += [command] if command is not None else []
            blocked += blocked_nodes
    return MethodResult(commands=tuple(commands), blocked=tuple(blocked))


def validate(command: Command, state: DisruptionState, _budgets: BudgetTracker) -> str:
    """Why the command can't be executed; empty when it can."""
    return "" if command.forced else graceful_disruption.validate(command, state)


def _replacement_reason(state: DisruptionState, candidate: Candidate) -> tuple[str, str]:
    """The reason (expired or drifted) for which the node must be replaced, and the message; empty when it needn't."""
    if message := expiration.disruption_message(state, candidate):
        return expiration.REASON, message
    if message := drift.disruption_message(state, candidate):
        return drift.REASON, message
    return "", ""


def _remove_without_node(claim: NodeClaim) -> Command:
    """Deletes a claim that has no node yet: no pod runs there, so nothing has to be checked."""
    message = f"{_MESSAGE}, and this NodeClaim has no node yet"
    return Command(removals=(Removal(claim=claim.name, node=claim.name, reason=SURPLUS, message=message),), forced=True)


def _replace_one(
    state: DisruptionState, budgets: BudgetTracker, pool: NodePool, nodes: Iterable[Candidate]
) -> tuple[Command | None, list[BlockedCandidate]]:
    """The command for the oldest node of the pool that must and can be replaced, and those before it, blocked."""
    blocked: list[BlockedCandidate] = []
    for candidate in sorted(nodes, key=lambda c: c.claim.metadata.creation_timestamp or state.now):
        reason, message = _replacement_reason(state, candidate)
        if not reason:
            continue
        blocker = (
            disruption_blocker(state, candidate)
            or budgets.blocker(pool.name, reason)
            or _missing_replica(state, candidate)
        )
        if blocker is None:
            claims, why_not = plan_nodes(pool, 1, state.snapshot, state.instance_types, state.not_ready)
            if claims:
                budgets.consume(pool.name)
                removals = (candidate.removal(reason=reason, message=message),)
                savings = (state.price(candidate.claim) or 0.0) - claims[0].cheapest.effective_price
                return Command(removals=removals, replacements=claims, savings=savings), blocked
            blocker = Blocker(message=f"no replacement can be launched: {why_not}", by=f"NodePool {pool.name}")
            outcome = terminate_first.without_replacement(state, candidate, blocker, reason=reason, message=message)
            if isinstance(outcome, Command):
                budgets.consume(pool.name)
                return outcome, blocked
            blocked.append(outcome)
        else:
            blocked.append(candidate.blocked(blocker, reason=reason))
    return None, blocked


def _missing_replica(state: DisruptionState, candidate: Candidate) -> Blocker | None:
    """That a node which went first hasn't its replacement yet, so that the next waits; None once it has.

    What is free is the missing replica's: the next node's replacement would take it.
    """
    pool = candidate.pool
    if not terminate_first.is_allowed(candidate):
        return None
    wanted = min(pool.spec.replicas or 0, terminate_first.node_limit(pool))
    initialized = sum(c.pool.name == pool.name for c in static_candidates(state))
    if initialized >= wanted:
        return None
    return Blocker(
        message=f"{initialized} of {plural(wanted, 'node')} are initialized; the next is replaced once all are",
        by=f"NodePool {pool.name}",
    )
