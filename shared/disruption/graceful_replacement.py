"""Nodes that must be replaced by others of their kind, whatever that costs: the way of expiration and drift.

As many at once as budgets allow, a few at most, so that one that can't be replaced doesn't hold up many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.disruption import candidates
from shared.disruption.budgets import budget_blocker
from shared.disruption.command import BlockedCandidate, Blocker, Command, MethodResult, Removal
from shared.disruption.simulated_scheduling import simulate_scheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState

MAX_CANDIDATES = 10


def compute(
    view: ClusterState, slots: BudgetTracker, wanted: Sequence[tuple[Candidate, str]], *, reason: str
) -> MethodResult:
    """One action for the first that may go, in their order; the others are told why not. ``wanted``: with the why."""
    refused: list[BlockedCandidate] = []
    chosen: list[tuple[Candidate, str]] = []
    room: dict[str, int] = {}
    for candidate, why in wanted:
        pool = candidate.pool.name
        room.setdefault(pool, slots.remaining(pool, reason))
        obstacle = candidates.disruption_blocker(view, candidate)
        if obstacle is None and room[pool] < 1:
            obstacle = budget_blocker(pool, reason)
        if obstacle is None and not view.pod_disruption_budgets.allow_together(
            [c.pods for c, _ in (*chosen, (candidate, why))]
        ):
            obstacle = Blocker(message="PodDisruptionBudgets let it go only after others", by="PodDisruptionBudgets")
        if obstacle is not None:
            refused.append(_refused(candidate, reason, obstacle))
        elif len(chosen) < MAX_CANDIDATES:
            room[pool] -= 1
            chosen.append((candidate, why))
    placing = simulate_scheduling(view, [c for c, _ in chosen]) if chosen else None
    while placing is not None and (placing.unschedulable or placing.needs_uninitialized_nodes):
        stuck = {c.name: found for c, _ in chosen if (found := placing.blocker(c)) is not None}
        kept = [(c, w) for c, w in chosen if c.name not in stuck]
        refused += [_refused(c, reason, stuck[c.name]) for c, _ in chosen if c.name in stuck]
        # Nobody in particular is stuck, but a node on its way is counted on: it is waited for.
        chosen = kept if len(kept) < len(chosen) else []
        placing = simulate_scheduling(view, [c for c, _ in chosen]) if chosen else None
    if placing is None or not chosen:
        return MethodResult(blocked=tuple(refused))
    for candidate, _ in chosen:
        slots.consume(candidate.pool.name)
    removals = tuple(
        Removal(claim=c.claim.name, node=c.name, reason=reason, message=why, pods=tuple(p.key for p in c.pods))
        for c, why in chosen
    )
    before = sum(view.price(c.claim) or 0.0 for c, _ in chosen)
    action = Command(removals=removals, replacements=placing.node_claims, savings=before - placing.price)
    return MethodResult(commands=(action,), blocked=tuple(refused))


def validate(action: Command, view: ClusterState) -> str:
    """Why the action can't be carried out on the cluster as it is now; empty when it can."""
    found = {c.claim.name: c for c in candidates.all_candidates(view)}
    for removal in action.removals:
        candidate = found.get(removal.claim)
        if candidate is None:
            return f"node {removal.node} is no candidate any more"
        obstacle = candidates.disruption_blocker(view, candidate)
        if obstacle is not None:
            return f"node {removal.node}: {obstacle.message}"
        if {p.key for p in candidate.pods} - set(removal.pods):
            return f"node {removal.node} has got new pods"
    return ""


def _refused(candidate: Candidate, reason: str, obstacle: Blocker) -> BlockedCandidate:
    moved = len(candidate.pods)
    return BlockedCandidate(
        claim=candidate.claim.name, node=candidate.name, reason=reason, blocker=obstacle, pods=moved
    )
