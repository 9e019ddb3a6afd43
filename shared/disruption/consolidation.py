"""Consolidation: fewer or cheaper nodes for the same pods, by one search over the whole cluster.

Sets of candidates (:mod:`shared.disruption.candidate_sets`) are evaluated by simulated scheduling: their pods need
other nodes (delete), one new node (replace one) or several (m for n). The set with the highest net savings
(:mod:`shared.disruption.savings`) is kept, so the search may be stopped at any moment; with the same number of steps it
gives the same result. The command is within budgets and PodDisruptionBudgets, and saves money whatever EC2 launches.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import condition
from shared.base.struct import Struct
from shared.disruption import graceful_disruption
from shared.disruption.candidate_matrix import build_candidate_matrix
from shared.disruption.candidate_sets import BudgetedCandidates, candidate_sets
from shared.disruption.candidates import disruption_blocker, dynamic_candidates
from shared.disruption.command import UNDERUTILIZED, BlockedCandidate, Blocker, MethodResult
from shared.disruption.consolidation_search import BALANCED, ConsolidationSearch
from shared.disruption.savings import NO_SAVINGS, BalancedTotals, savings_duration
from shared.disruption.simulated_scheduling import simulate_scheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.command import Command
    from shared.disruption.disruption_state import DisruptionState
    from shared.disruption.savings import NetSavings

REASON = UNDERUTILIZED
NEEDS_PRICES = True
_WHEN_EMPTY = "WhenEmpty"
_PRICE_TOLERANCE = 1e-9


class SearchResult(Struct, kw_only=True):
    """The command for the best set, its net savings, and how many sets were evaluated.

    The other fields are those of :class:`~shared.disruption.command.MethodResult`.
    """

    command: Command | None = None
    net_savings: NetSavings = NO_SAVINGS
    evaluated: int = 0
    blocked: tuple[BlockedCandidate, ...] = ()
    requeue_at: datetime | None = None
    next_savings_at: datetime | None = None


def due_candidates(state: DisruptionState) -> tuple[Candidate, ...]:
    """The candidates whose policy allows consolidation and whose consolidateAfter is over, sorted by claim."""
    return tuple(c for c in dynamic_candidates(state) if (due := due_time(c)) is not None and due <= state.now)


def find_candidates(state: DisruptionState) -> tuple[Candidate, ...]:
    """The due candidates with a known price; without it, savings can't be computed."""
    return tuple(c for c in due_candidates(state) if state.price(c.claim) is not None)


def search(
    state: DisruptionState,
    budgets: BudgetTracker,
    should_stop: Callable[[], bool],
    *,
    on_improvement: Callable[[NetSavings], None] | None = None,
) -> SearchResult:
    """The best command until ``should_stop``, which is called before each step; consumes nothing from the budgets.

    ``on_improvement`` is called with the net savings of each new best set.
    """
    candidates, blocked = _unblocked(state, budgets)
    due_times = (due_time(c) for c in dynamic_candidates(state))
    requeue_at = min((t for t in due_times if t is not None and t > state.now), default=None)
    if not candidates or pending_pods_need_nodes(state):
        return SearchResult(blocked=blocked, requeue_at=requeue_at)
    consolidation = _new_search(state, candidates)
    pools = [c.pool.name for c in candidates]
    remaining = {pool: budgets.remaining(pool, UNDERUTILIZED) for pool in pools}
    budgeted = BudgetedCandidates(
        pools=pools,
        remaining=remaining,
        matrix=consolidation.matrix,
        deletion_values=consolidation.deletion_values if _has_evidence(state, candidates) else None,
    )
    is_stopped = False
    for rows in candidate_sets(budgeted, lambda: consolidation.best, consolidation.blockers.keys):
        if is_stopped := should_stop():
            break
        if consolidation.evaluate(rows) and on_improvement is not None:
            on_improvement(consolidation.net_savings)
    return SearchResult(
        command=consolidation.command,
        net_savings=consolidation.net_savings,
        evaluated=len(consolidation.evaluated),
        blocked=(*blocked, *consolidation.blocked_candidates),
        requeue_at=requeue_at,
        next_savings_at=None if is_stopped else state.now + consolidation.time_until_savings,
    )


def remove_alone(state: DisruptionState, candidate: Candidate) -> Command | Blocker:
    """The command that removes the candidate alone, or why that doesn't pay; budgets and consolidateAfter don't count.

    For users who ask about one node; :func:`search` decides for all.
    """
    if state.price(candidate.claim) is None:
        return Blocker(message="the node's price is unknown")
    if not state.pod_disruption_budgets.allow_together([candidate.pods]):
        return Blocker(message="PodDisruptionBudgets don't allow all of its pods to be evicted at once")
    alone = _new_search(state, [candidate])
    alone.evaluate([0])
    if alone.command is not None:
        return alone.command
    why = next(iter(alone.blocked_candidates), None)
    return Blocker(message=why.message if why is not None else "its pods would go to nodes that aren't initialized yet")


def _has_evidence(state: DisruptionState, candidates: Sequence[Candidate]) -> bool:
    """Whether it is known for one of the candidates how long savings last."""
    evidence = (state.evidence.get(c.pool.name) for c in candidates)
    return any(e is not None and not e.is_limit for e in evidence)


def _new_search(state: DisruptionState, candidates: Sequence[Candidate]) -> ConsolidationSearch:
    return ConsolidationSearch(
        state=state,
        candidates=candidates,
        matrix=build_candidate_matrix(state, candidates, [state.price(c.claim) or 0.0 for c in candidates]),
        durations=[
            savings_duration(
                c,
                time_since_launch=state.time_since_launch(c.pool.name),
                now=state.now,
                evidence=state.evidence.get(c.pool.name),
            )
            for c in candidates
        ],
        balanced_totals=_balanced_totals(state),
    )


def compute(state: DisruptionState, budgets: BudgetTracker, should_stop: Callable[[], bool]) -> MethodResult:
    """The best command there is time to find."""
    result = search(state, budgets, should_stop)
    if result.command is None:
        return MethodResult(
            blocked=result.blocked, requeue_at=result.requeue_at, next_savings_at=result.next_savings_at
        )
    pools = {c.name: c.pool.name for c in dynamic_candidates(state)}
    for node in result.command.nodes:
        budgets.consume(pools[node])
    return MethodResult(commands=(result.command,), blocked=result.blocked, requeue_at=result.requeue_at)


def validate(command: Command, state: DisruptionState, budgets: BudgetTracker) -> str:
    """Why the command can't be executed on the cluster as it is now; empty when it can, at no higher price."""
    message = graceful_disruption.validate(command, state)
    if message:
        return message
    by_claim = {c.claim.name: c for c in find_candidates(state)}
    removed = [by_claim[r.claim] for r in command.removals if r.claim in by_claim]
    if len(removed) < len(command.removals):
        return "a node is no longer a candidate for consolidation"
    return _validate_budgets(state, budgets, removed) or _validate_simulation(command, state, removed)


def _validate_budgets(state: DisruptionState, budgets: BudgetTracker, removed: Sequence[Candidate]) -> str:
    for pool, count in Counter(c.pool.name for c in removed).items():
        if budgets.remaining(pool, UNDERUTILIZED) < count:
            return f"disruption budgets of NodePool {pool} allow fewer disruptions than before"
    if not state.pod_disruption_budgets.allow_together([c.pods for c in removed]):
        return "PodDisruptionBudgets allow fewer evictions than before"
    return ""


def _validate_simulation(command: Command, state: DisruptionState, removed: Sequence[Candidate]) -> str:
    if pending_pods_need_nodes(state):
        return "pending pods need new nodes first"
    simulation = simulate_scheduling(state, removed)
    if not simulation.all_scheduled:
        return "pods can no longer be scheduled on other nodes"
    planned_price = sum(c.cheapest.effective_price for c in command.replacements)
    more_claims = len(simulation.node_claims) > len(command.replacements)
    if more_claims or simulation.price > planned_price + _PRICE_TOLERANCE:
        return "pods need more or more expensive replacements than planned"
    return ""


def _unblocked(state: DisruptionState, budgets: BudgetTracker) -> tuple[list[Candidate], tuple[BlockedCandidate, ...]]:
    """The candidates that aren't blocked, and those that are."""
    unblocked: list[Candidate] = []
    blocked: list[BlockedCandidate] = []
    for candidate in find_candidates(state):
        blocker = disruption_blocker(state, candidate) or budgets.blocker(candidate.pool.name, UNDERUTILIZED)
        if blocker is not None:
            blocked.append(candidate.blocked(blocker, reason=UNDERUTILIZED))
        else:
            unblocked.append(candidate)
    return unblocked, tuple(blocked)


def _balanced_totals(state: DisruptionState) -> BalancedTotals:
    """The price and disruption cost of all nodes of pools with policy Balanced, whether or not they are blocked."""
    nodes = [c for c in dynamic_candidates(state) if c.pool.spec.disruption.consolidation_policy == BALANCED]
    if not nodes:
        return BalancedTotals(price=0.0, disruption_cost=0.0)
    matrix = build_candidate_matrix(state, nodes, [state.price(c.claim) or 0.0 for c in nodes])
    return BalancedTotals(price=float(matrix.price.sum()), disruption_cost=float(matrix.disruption_cost.sum()))


def pending_pods_need_nodes(state: DisruptionState) -> bool:
    """Whether pending pods need new nodes: they come first, and their nodes change what can be consolidated."""
    return bool(simulate_scheduling(state, ()).node_claims)


def due_time(candidate: Candidate) -> datetime | None:
    """When the node may be consolidated, consolidateAfter after its last pod came; None: never."""
    disruption = candidate.pool.spec.disruption
    if disruption.consolidation_policy == _WHEN_EMPTY:
        return None
    try:
        delay = parse_duration(disruption.consolidate_after)
    except DurationError:
        return None
    if delay is None:
        return None
    initialized = condition(candidate.claim.status.conditions, nodeclaim.INITIALIZED)
    last_change = initialized.last_transition_time if initialized is not None else None
    if last_change is None:
        return candidate.claim.metadata.creation_timestamp
    for pod in candidate.pods:
        started = pod.status.start_time or pod.metadata.creation_timestamp
        if started is not None and started > last_change:
            last_change = started
    return last_change + delay
