"""Nodes that must be replaced by others of their kind, whatever that costs: the way of expiration and drift.

As many at once as budgets allow, a few at most, so that one that can't be replaced doesn't hold up many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.disruption import candidates
from shared.disruption.budgets import exhausted
from shared.disruption.command import Action, Command, Obstacle, Refused, Removal
from shared.disruption.simulated_scheduling import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.disruption.budgets import Slots
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import View

AT_ONCE = 10


def command(view: View, slots: Slots, wanted: Sequence[tuple[Candidate, str]], *, reason: str) -> Command:
    """One action for the first that may go, in their order; the others are told why not. ``wanted``: with the why."""
    refused: list[Refused] = []
    chosen: list[tuple[Candidate, str]] = []
    room: dict[str, int] = {}
    for candidate, why in wanted:
        pool = candidate.pool.name
        room.setdefault(pool, slots.left(pool, reason))
        obstacle = candidates.obstacle(view, candidate)
        if obstacle is None and room[pool] < 1:
            obstacle = exhausted(pool, reason)
        if obstacle is None and not view.pod_budgets.allow([c.pods for c, _ in (*chosen, (candidate, why))]):
            obstacle = Obstacle(message="PodDisruptionBudgets let it go only after others", by="PodDisruptionBudgets")
        if obstacle is not None:
            refused.append(_refused(candidate, reason, obstacle))
        elif len(chosen) < AT_ONCE:
            room[pool] -= 1
            chosen.append((candidate, why))
    placing = place(view, [c for c, _ in chosen]) if chosen else None
    while placing is not None and (placing.stuck or placing.waiting):
        stuck = {c.name: found for c, _ in chosen if (found := placing.obstacle(c)) is not None}
        kept = [(c, w) for c, w in chosen if c.name not in stuck]
        refused += [_refused(c, reason, stuck[c.name]) for c, _ in chosen if c.name in stuck]
        # Nobody in particular is stuck, but a node on its way is counted on: it is waited for.
        chosen = kept if len(kept) < len(chosen) else []
        placing = place(view, [c for c, _ in chosen]) if chosen else None
    if placing is None or not chosen:
        return Command(refused=tuple(refused))
    for candidate, _ in chosen:
        slots.take(candidate.pool.name)
    removals = tuple(
        Removal(claim=c.claim.name, node=c.name, reason=reason, message=why, pods=tuple(p.key for p in c.pods))
        for c, why in chosen
    )
    before = sum(view.price(c.claim) or 0.0 for c, _ in chosen)
    action = Action(removals=removals, replacements=placing.claims, savings=before - placing.price)
    return Command(actions=(action,), refused=tuple(refused))


def still_valid(action: Action, view: View) -> str:
    """Why the action can't be carried out on the cluster as it is now; empty when it can."""
    found = {c.claim.name: c for c in candidates.every(view)}
    for removal in action.removals:
        candidate = found.get(removal.claim)
        if candidate is None:
            return f"node {removal.node} is no candidate any more"
        obstacle = candidates.obstacle(view, candidate)
        if obstacle is not None:
            return f"node {removal.node}: {obstacle.message}"
        if {p.key for p in candidate.pods} - set(removal.pods):
            return f"node {removal.node} has got new pods"
    return ""


def _refused(candidate: Candidate, reason: str, obstacle: Obstacle) -> Refused:
    moved = len(candidate.pods)
    return Refused(claim=candidate.claim.name, node=candidate.name, reason=reason, obstacle=obstacle, pods=moved)
