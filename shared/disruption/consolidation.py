"""Fewer or cheaper nodes for the same pods: one search over the whole cluster.

A set of nodes to remove is proposed from arrays (:mod:`shared.disruption.ground`), and the scheduling core says what
their pods would need: room elsewhere (delete), one machine (replace one) or several (m for n). Of all sets the one that
is worth most (:mod:`shared.disruption.worth`) is kept, so the search may be stopped at any moment; with the same number
of steps it gives the same answer. What comes back is within budgets and PodDisruptionBudgets, and cheaper whatever EC2
launches.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import condition
from shared.disruption import candidates, choice, proposals, succession, worth
from shared.disruption.command import UNDERUTILIZED, Action, Command, Refused, Removal
from shared.disruption.ground import survey
from shared.disruption.replacing import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from shared.disruption.budgets import Slots
    from shared.disruption.candidates import Candidate
    from shared.disruption.ground import Ground
    from shared.disruption.view import View
    from shared.scheduling.decision import PlannedClaim

REASON = UNDERUTILIZED
_EMPTY_ONLY = "WhenEmpty"
_BALANCED = "Balanced"
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best set found, what it is worth (USD, above zero) and how many sets were asked about."""

    action: Action | None = None
    value: float = 0.0
    asked: int = 0
    refused: tuple[Refused, ...] = ()
    look_again: datetime | None = None


@dataclass(kw_only=True)
class _Search:
    """The candidates and what has been found among them so far."""

    view: View
    rows: Sequence[Candidate]
    ground: Ground
    hours: Sequence[float]
    balanced: worth.Balanced
    best: tuple[int, ...] = ()
    claims: tuple[PlannedClaim, ...] = ()
    value: float = 0.0
    known: dict[tuple[int, ...], float] = field(default_factory=dict)
    blocked: dict[int, str] = field(default_factory=dict)

    def ask(self, chosen: Sequence[int]) -> float:
        """What giving up these rows is worth; kept if it is the most so far."""
        key = tuple(sorted(chosen))
        if key in self.known:
            return self.known[key]
        value, claims = self._weigh(key)
        self.known[key] = value
        if value > self.value:
            self.best, self.claims, self.value = key, claims, value
        return value

    def _weigh(self, key: tuple[int, ...]) -> tuple[float, tuple[PlannedClaim, ...]]:
        none: tuple[float, tuple[PlannedClaim, ...]] = (float("-inf"), ())
        leaving = [self.rows[i] for i in key]
        if not key or not self.view.pod_budgets.allow([c.pods for c in leaving]):
            return none
        placing = place(self.view, leaving)
        if placing.stuck or placing.waiting:
            for i in key:
                pod = next((p.key for p in self.rows[i].pods if p.key in placing.stuck), None)
                if pod is not None:
                    self.blocked[i] = f"pod {pod} has no place elsewhere: {placing.stuck[pod]}"
            return none
        price = float(self.ground.price[list(key)].sum())
        claims = _affordable(self.view, leaving, placing.claims, price)
        if claims is None:
            return none
        weights = self.ground.price[list(key)]
        hours = float((weights * [self.hours[i] for i in key]).sum() / weights.sum()) if weights.sum() > 0 else 0.0
        balanced = any(c.pool.spec.disruption.consolidation_policy == _BALANCED for c in leaving)
        value = worth.pays(
            price=price,
            replacements=sum(c.cheapest.price for c in claims),
            hours=hours,
            moving=float(self.ground.moving[list(key)].sum()),
            balanced=self.balanced if balanced else None,
        )
        return value, claims


def due(view: View) -> tuple[Candidate, ...]:
    """The nodes of pools that want it, left alone by pods for consolidateAfter, by claim."""
    return tuple(c for c in candidates.every(view) if (w := _due(c)) is not None and w <= view.now)


def find(view: View) -> tuple[Candidate, ...]:
    """Those of a known price: without one, nobody knows what would be saved."""
    return tuple(c for c in due(view) if view.price(c.claim) is not None)


def search(
    view: View, slots: Slots, should_stop: Callable[[], bool], *, told: Callable[[float], None] | None = None
) -> Found:
    """The best action found before ``should_stop``, asked before each step; nothing is taken from the slots.

    ``told`` hears the value of each best set as soon as it is found.
    """
    open_, refused = _open(view, slots)
    waits = [w for c in candidates.every(view) if (w := _due(c)) is not None and w > view.now]
    look_again = min(waits, default=None)
    if not open_ or _is_short(view):
        return Found(refused=refused, look_again=look_again)
    prices = [view.price(c.claim) or 0.0 for c in open_]
    ground = survey(view, open_, prices)
    state = _Search(
        view=view,
        rows=open_,
        ground=ground,
        hours=[worth.hours_left(c, view.now) for c in open_],
        balanced=worth.Balanced(price=float(ground.price.sum()), moving=float(ground.moving.sum())),
    )
    room = {c.pool.name: slots.left(c.pool.name, UNDERUTILIZED) for c in open_}
    asked = proposals.Asked(pools=[c.pool.name for c in open_], room=room, ground=ground)
    for chosen in proposals.proposals(asked, lambda: state.best, state.blocked.keys):
        if should_stop():
            break
        before = state.value
        state.ask(chosen)
        if told is not None and state.value > before:
            told(state.value)
    stuck = tuple(
        Refused(claim=open_[i].claim.name, node=open_[i].name, reason=UNDERUTILIZED, message=why)
        for i, why in sorted(state.blocked.items())
    )
    return Found(
        action=_action(state) if state.best else None,
        value=state.value,
        asked=len(state.known),
        refused=(*refused, *stuck),
        look_again=look_again,
    )


def command(view: View, slots: Slots, should_stop: Callable[[], bool]) -> Command:
    """The best action there is time to find."""
    found = search(view, slots, should_stop)
    if found.action is not None:
        pools = {c.name: c.pool.name for c in candidates.every(view)}
        for node in found.action.nodes:
            slots.take(pools[node])
    actions = (found.action,) if found.action is not None else ()
    return Command(actions=actions, refused=found.refused, look_again=found.look_again)


def still_valid(action: Action, view: View, slots: Slots) -> str:
    """Why it can't be carried out on the cluster as it is now; empty when it can, at no higher price."""
    obstacle = succession.still_valid(action, view)
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
        pool = candidate.pool.name
        if not obstacle and slots.left(pool, UNDERUTILIZED) < 1:
            obstacle = f"the disruption budgets of NodePool {pool} allow no more {UNDERUTILIZED} nodes now"
        if obstacle:
            claim, node = candidate.claim.name, candidate.name
            refused.append(Refused(claim=claim, node=node, reason=UNDERUTILIZED, message=obstacle))
        else:
            open_.append(candidate)
    return open_, tuple(refused)


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


def _affordable(
    view: View, leaving: Sequence[Candidate], claims: Sequence[PlannedClaim], price: float
) -> tuple[PlannedClaim, ...] | None:
    """The claims with only such types as keep the whole a saving, whatever is launched; None: there is no such choice.

    Each may cost as much more than its cheapest as the improvement that is asked for leaves, in proportion.
    """
    if not claims:
        return ()
    planned = sum(c.cheapest.price for c in claims)
    limit = price * (1 - worth.IMPROVEMENT)
    if planned > limit or planned <= 0:
        return None
    kept: list[PlannedClaim] = []
    for claim in claims:
        types = view.instance_types.get(claim.node_pool, ())
        trimmed = choice.within(claim, types, claim.cheapest.price * limit / planned)
        if trimmed is None:
            return None
        kept.append(trimmed)
    if len(leaving) == 1 and len(kept) == 1 and kept[0].cheapest.capacity_type == names.SPOT:
        was_spot = leaving[0].claim.metadata.labels.get(names.CAPACITY_TYPE) == names.SPOT
        if was_spot and len(kept[0].instance_types) < choice.LEAST_SPOT_CHOICE:
            return None
    return tuple(kept)


def _action(state: _Search) -> Action:
    leaving = [state.rows[i] for i in state.best]
    before = float(state.ground.price[list(state.best)].sum())
    after = sum(c.cheapest.price for c in state.claims)
    pods = sum(len(c.pods) for c in leaving)
    came = f"{len(state.claims)} cheaper" if state.claims else "none"
    message = f"{len(leaving)} of ${before:.4f}/h can be replaced by {came}: "
    message += f"saves ${before - after:.4f}/h for {pods} moved pods"
    removals = tuple(
        Removal(
            claim=c.claim.name,
            node=c.name,
            reason=UNDERUTILIZED,
            message=message,
            pods=tuple(p.key for p in c.pods),
        )
        for c in leaving
    )
    return Action(removals=removals, replacements=state.claims, savings=before - after)
