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
from shared.disruption.candidate_matrix import survey
from shared.disruption.command import UNDERUTILIZED, Command, Refused
from shared.disruption.consolidation_search import BALANCED, Weighing
from shared.disruption.savings import Balanced
from shared.disruption.simulated_scheduling import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from shared.disruption.budgets import Slots
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import View
    from shared.disruption.command import Action
    from shared.disruption.savings import Worth

REASON = UNDERUTILIZED
_EMPTY_ONLY = "WhenEmpty"
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best set found, what it is worth and how many sets were asked about."""

    action: Action | None = None
    value: Worth = savings.NOTHING
    asked: int = 0
    refused: tuple[Refused, ...] = ()
    look_again: datetime | None = None


def due(view: View) -> tuple[Candidate, ...]:
    """The nodes of pools that want it, left alone by pods for consolidateAfter, by claim."""
    return tuple(c for c in candidates.following(view) if (w := _due(c)) is not None and w <= view.now)


def find(view: View) -> tuple[Candidate, ...]:
    """Those of a known price: without one, nobody knows what would be saved."""
    return tuple(c for c in due(view) if view.price(c.claim) is not None)


def search(
    view: View, slots: Slots, should_stop: Callable[[], bool], *, told: Callable[[Worth], None] | None = None
) -> Found:
    """The best action found before ``should_stop``, asked before each step; nothing is taken from the slots.

    ``told`` hears the value of each best set as soon as it is found.
    """
    open_, refused = _open(view, slots)
    waits = [w for c in candidates.following(view) if (w := _due(c)) is not None and w > view.now]
    look_again = min(waits, default=None)
    if not open_ or _is_short(view):
        return Found(refused=refused, look_again=look_again)
    prices = [view.price(c.claim) or 0.0 for c in open_]
    ground = survey(view, open_, prices)
    state = Weighing(
        view=view,
        rows=open_,
        ground=ground,
        spans=[savings.span(c, quiet=view.quiet(c.pool.name), now=view.now) for c in open_],
        balanced=_balanced(view),
    )
    room = {c.pool.name: slots.left(c.pool.name, UNDERUTILIZED) for c in open_}
    asked = candidate_sets.Asked(pools=[c.pool.name for c in open_], room=room, ground=ground)
    for chosen in candidate_sets.proposals(asked, lambda: state.best, state.blocked.keys):
        if should_stop():
            break
        if state.ask(chosen) and told is not None:
            told(state.value)
    return Found(
        action=state.action,
        value=state.value,
        asked=len(state.asked),
        refused=(*refused, *state.refused),
        look_again=look_again,
    )


def command(view: View, slots: Slots, should_stop: Callable[[], bool]) -> Command:
    """The best action there is time to find."""
    found = search(view, slots, should_stop)
    if found.action is not None:
        pools = {c.name: c.pool.name for c in candidates.following(view)}
        for node in found.action.nodes:
            slots.take(pools[node])
    actions = (found.action,) if found.action is not None else ()
    return Command(actions=actions, refused=found.refused, look_again=found.look_again)


def still_valid(action: Action, view: View, slots: Slots) -> str:
    """Why it can't be carried out on the cluster as it is now; empty when it can, at no higher price."""
    obstacle = graceful_replacement.still_valid(action, view)
    if obstacle:
        return obstacle
    by_claim = {c.claim.name: c for c in find(view)}
    leaving = [by_claim[r.claim] for r in action.removals if r.claim in by_claim]
    if len(leaving) < len(action.removals):
        return "a node was used or changed meanwhile"
    return _lack(action, view, slots, leaving)


def _lack(action: Action, view: View, slots: Slots, leaving: Sequence[Candidate]) -> str:
    """What budgets or the scheduling core no longer grant; empty when they grant all of it."""
    for pool, count in Counter(c.pool.name for c in leaving).items():
        if slots.left(pool, UNDERUTILIZED) < count:
            return f"the disruption budgets of NodePool {pool} allow less than before"
    if not view.pod_budgets.allow([c.pods for c in leaving]):
        return "PodDisruptionBudgets allow less than before"
    if _is_short(view):
        return "pending pods need new nodes first"
    placing = place(view, leaving)
    if placing.stuck or placing.waiting:
        return "its pods no longer have places elsewhere"
    planned = sum(c.cheapest.price for c in action.replacements)
    if len(placing.claims) > len(action.replacements) or placing.price > planned + _ROUNDING:
        return "its pods would need more than was planned"
    return ""


def _open(view: View, slots: Slots) -> tuple[list[Candidate], tuple[Refused, ...]]:
    """The candidates that may go, and what holds the others."""
    open_: list[Candidate] = []
    refused: list[Refused] = []
    for candidate in find(view):
        obstacle = candidates.obstacle(view, candidate)
        obstacle = obstacle or slots.obstacle(candidate.pool.name, UNDERUTILIZED)
        if obstacle is not None:
            claim, node, moved = candidate.claim.name, candidate.name, len(candidate.pods)
            refused.append(Refused(claim=claim, node=node, reason=UNDERUTILIZED, obstacle=obstacle, pods=moved))
        else:
            open_.append(candidate)
    return open_, tuple(refused)


def _balanced(view: View) -> Balanced:
    """What all nodes of pools that ask for it cost, and cost to move, whether or not they may go."""
    rows = [c for c in candidates.following(view) if c.pool.spec.disruption.consolidation_policy == BALANCED]
    if not rows:
        return Balanced(price=0.0, moving=0.0)
    ground = survey(view, rows, [view.price(c.claim) or 0.0 for c in rows])
    return Balanced(price=float(ground.price.sum()), moving=float(ground.moving.sum()))


def _is_short(view: View) -> bool:
    """Whether pending pods need new nodes: they come first, and what they get changes everything."""
    return bool(place(view, ()).claims)


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
