"""Fewer or cheaper nodes for the same pods: one search over the whole cluster.

A set of nodes to remove is proposed from arrays (:mod:`shared.disruption.candidate_matrix`), and the scheduling core
says what their pods would need: room elsewhere (delete), one machine (replace one) or several (m for n). The set with
the highest net savings (:mod:`shared.disruption.savings`) is kept, so the search may be stopped at any moment; with the
same number of steps it gives the same answer. The result is within budgets and PodDisruptionBudgets, and cheaper
whatever EC2 launches.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import condition
from shared.disruption import candidate_sets, candidates, graceful_replacement, savings
from shared.disruption.candidate_matrix import build_candidate_matrix
from shared.disruption.command import UNDERUTILIZED, BlockedCandidate, MethodResult
from shared.disruption.consolidation_search import BALANCED, ConsolidationSearch
from shared.disruption.savings import BalancedTotals
from shared.disruption.simulated_scheduling import simulate_scheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState
    from shared.disruption.command import Command
    from shared.disruption.savings import NetSavings

REASON = UNDERUTILIZED
_EMPTY_ONLY = "WhenEmpty"
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best set found, what it is worth and how many sets were asked about."""

    command: Command | None = None
    net_savings: NetSavings = savings.NO_SAVINGS
    evaluated: int = 0
    blocked: tuple[BlockedCandidate, ...] = ()
    requeue_at: datetime | None = None


def due_candidates(view: ClusterState) -> tuple[Candidate, ...]:
    """The nodes of pools that want it, left alone by pods for consolidateAfter, by claim."""
    return tuple(c for c in candidates.dynamic_candidates(view) if (w := _due(c)) is not None and w <= view.now)


def find_candidates(view: ClusterState) -> tuple[Candidate, ...]:
    """Those of a known price: without one, nobody knows what would be saved."""
    return tuple(c for c in due_candidates(view) if view.price(c.claim) is not None)


def search(
    view: ClusterState,
    slots: BudgetTracker,
    should_stop: Callable[[], bool],
    *,
    on_improvement: Callable[[NetSavings], None] | None = None,
) -> SearchResult:
    """The best action found before ``should_stop``, asked before each step; nothing is taken from the slots.

    ``told`` hears the value of each best set as soon as it is found.
    """
    open_, refused = _open(view, slots)
    waits = [w for c in candidates.dynamic_candidates(view) if (w := _due(c)) is not None and w > view.now]
    look_again = min(waits, default=None)
    if not open_ or _is_short(view):
        return SearchResult(blocked=refused, requeue_at=look_again)
    prices = [view.price(c.claim) or 0.0 for c in open_]
    ground = build_candidate_matrix(view, open_, prices)
    state = ConsolidationSearch(
        cluster_state=view,
        candidates=open_,
        matrix=ground,
        durations=[savings.savings_duration(c, quiet=view.time_since_launch(c.pool.name), now=view.now) for c in open_],
        balanced_totals=_balanced(view),
    )
    room = {c.pool.name: slots.remaining(c.pool.name, UNDERUTILIZED) for c in open_}
    asked = candidate_sets.BudgetedCandidates(pools=[c.pool.name for c in open_], remaining=room, matrix=ground)
    for chosen in candidate_sets.candidate_sets(asked, lambda: state.best, state.blockers.keys):
        if should_stop():
            break
        if state.evaluate(chosen) and on_improvement is not None:
            on_improvement(state.net_savings)
    return SearchResult(
        command=state.command,
        net_savings=state.net_savings,
        evaluated=len(state.evaluated),
        blocked=(*refused, *state.blocked_candidates),
        requeue_at=look_again,
    )


def compute(view: ClusterState, slots: BudgetTracker, should_stop: Callable[[], bool]) -> MethodResult:
    """The best action there is time to find."""
    found = search(view, slots, should_stop)
    if found.command is not None:
        pools = {c.name: c.pool.name for c in candidates.dynamic_candidates(view)}
        for node in found.command.nodes:
            slots.consume(pools[node])
    actions = (found.command,) if found.command is not None else ()
    return MethodResult(commands=actions, blocked=found.blocked, requeue_at=found.requeue_at)


def validate(action: Command, view: ClusterState, slots: BudgetTracker) -> str:
    """Why it can't be carried out on the cluster as it is now; empty when it can, at no higher price."""
    obstacle = graceful_replacement.validate(action, view)
    if obstacle:
        return obstacle
    by_claim = {c.claim.name: c for c in find_candidates(view)}
    leaving = [by_claim[r.claim] for r in action.removals if r.claim in by_claim]
    if len(leaving) < len(action.removals):
        return "a node was used or changed meanwhile"
    return _lack(action, view, slots, leaving)


def _lack(action: Command, view: ClusterState, slots: BudgetTracker, leaving: Sequence[Candidate]) -> str:
    """What budgets or the scheduling core no longer grant; empty when they grant all of it."""
    for pool, count in Counter(c.pool.name for c in leaving).items():
        if slots.remaining(pool, UNDERUTILIZED) < count:
            return f"the disruption budgets of NodePool {pool} allow less than before"
    if not view.pod_disruption_budgets.allow_together([c.pods for c in leaving]):
        return "PodDisruptionBudgets allow less than before"
    if _is_short(view):
        return "pending pods need new nodes first"
    placing = simulate_scheduling(view, leaving)
    if placing.unschedulable or placing.needs_uninitialized_nodes:
        return "its pods no longer have places elsewhere"
    planned = sum(c.cheapest.price for c in action.replacements)
    if len(placing.node_claims) > len(action.replacements) or placing.price > planned + _ROUNDING:
        return "its pods would need more than was planned"
    return ""


def _open(view: ClusterState, slots: BudgetTracker) -> tuple[list[Candidate], tuple[BlockedCandidate, ...]]:
    """The candidates that may go, and what holds the others."""
    open_: list[Candidate] = []
    refused: list[BlockedCandidate] = []
    for candidate in find_candidates(view):
        obstacle = candidates.disruption_blocker(view, candidate)
        obstacle = obstacle or slots.blocker(candidate.pool.name, UNDERUTILIZED)
        if obstacle is not None:
            claim, node, moved = candidate.claim.name, candidate.name, len(candidate.pods)
            refused.append(BlockedCandidate(claim=claim, node=node, reason=UNDERUTILIZED, blocker=obstacle, pods=moved))
        else:
            open_.append(candidate)
    return open_, tuple(refused)


def _balanced(view: ClusterState) -> BalancedTotals:
    """What all nodes of pools that ask for it cost, and cost to move, whether or not they may go."""
    rows = [c for c in candidates.dynamic_candidates(view) if c.pool.spec.disruption.consolidation_policy == BALANCED]
    if not rows:
        return BalancedTotals(price=0.0, disruption_cost=0.0)
    ground = build_candidate_matrix(view, rows, [view.price(c.claim) or 0.0 for c in rows])
    return BalancedTotals(price=float(ground.price.sum()), disruption_cost=float(ground.disruption_cost.sum()))


def _is_short(view: ClusterState) -> bool:
    """Whether pending pods need new nodes: they come first, and what they get changes everything."""
    return bool(simulate_scheduling(view, ()).node_claims)


def _due(candidate: Candidate) -> datetime | None:
    """From when on the node may be considered; None: never."""
    disruption = candidate.pool.spec.disruption
    if disruption.consolidation_policy == _EMPTY_ONLY:
        return None
    try:
        after = parse_duration(disruption.consolidate_after)
    except DurationError:
        return None
    settled = condition(candidate.claim.status.conditions, nodeclaim.INITIALIZED)
    since = settled.last_transition_time if settled is not None else None
    if after is None or since is None:
        return None if after is None else candidate.claim.metadata.creation_timestamp
    for pod in candidate.pods:
        came = pod.status.start_time or pod.metadata.creation_timestamp
        if came is not None and came > since:
            since = came
    return since + after
