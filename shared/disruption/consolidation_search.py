"""What giving up a set of nodes is worth: its pods are placed by the scheduling core, and the best set is kept.

Every set that is asked about is asked once. Of a single node that doesn't pay it is remembered why, for people.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.disruption import price_filter, savings
from shared.disruption.command import UNDERUTILIZED, Action, Obstacle, Refused, Removal
from shared.disruption.simulated_scheduling import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.disruption.candidate_matrix import Ground
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import View
    from shared.disruption.savings import Balanced, Span, Worth
    from shared.scheduling.decision import PlannedNodeClaim

BALANCED = "Balanced"


@dataclass(kw_only=True)
class Weighing:
    """The candidates and what has been found among them so far. ``spans`` are theirs, ``balanced`` is all they have."""

    view: View
    rows: Sequence[Candidate]
    ground: Ground
    spans: Sequence[Span]
    balanced: Balanced
    best: tuple[int, ...] = ()
    claims: tuple[PlannedNodeClaim, ...] = ()
    value: Worth = savings.NOTHING
    asked: set[tuple[int, ...]] = field(default_factory=set)
    blocked: dict[int, Obstacle] = field(default_factory=dict)
    unworthy: dict[int, Refused] = field(default_factory=dict)

    def ask(self, chosen: Sequence[int]) -> bool:
        """Weigh giving up these rows; whether it is the best so far."""
        key = tuple(sorted(chosen))
        if not key or key in self.asked:
            return False
        self.asked.add(key)
        leaving = [self.rows[i] for i in key]
        if not self.view.pod_budgets.allow([c.pods for c in leaving]):
            return False
        placing = place(self.view, leaving)
        if placing.stuck or placing.waiting:
            found = {i: o for i in key if (o := placing.obstacle(self.rows[i])) is not None}
            self.blocked.update(found)
            return False
        return self._weigh(key, leaving, placing.claims)

    def _weigh(self, key: tuple[int, ...], leaving: Sequence[Candidate], planned: tuple[PlannedNodeClaim, ...]) -> bool:
        prices = [float(self.ground.price[i]) for i in key]
        balanced = any(c.pool.spec.disruption.consolidation_policy == BALANCED for c in leaving)
        deal = savings.Deal(
            price=sum(prices),
            replacements=sum(c.cheapest.price for c in planned),
            span=savings.together([self.spans[i] for i in key], prices),
            pods=sum(len(c.pods) for c in leaving),
            moving=float(self.ground.moving[list(key)].sum()),
            balanced=self.balanced if balanced else None,
        )
        value = deal.value
        obstacle = deal.obstacle
        claims: tuple[PlannedNodeClaim, ...] | None = ()
        if value > savings.NOTHING and planned:
            claims = affordable(self.view, leaving, planned, deal.price)
            if claims is None:
                value, obstacle = (
                    savings.NOTHING,
                    Obstacle(message="too few types are cheap enough for what might be launched"),
                )
        if value == savings.NOTHING or claims is None:
            if len(key) == 1:
                self._refuse(key[0], obstacle, deal)
            return False
        if value <= self.value:
            return False
        self.best, self.claims, self.value = key, claims, value
        return True

    def _refuse(self, row: int, obstacle: Obstacle, deal: savings.Deal) -> None:
        candidate = self.rows[row]
        self.unworthy[row] = Refused(
            claim=candidate.claim.name,
            node=candidate.name,
            reason=UNDERUTILIZED,
            obstacle=obstacle,
            savings=deal.savings,
            pods=deal.pods,
        )

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The rows that can't go, and, where nothing pays, those that were asked about alone."""
        stuck = tuple(
            Refused(claim=self.rows[i].claim.name, node=self.rows[i].name, reason=UNDERUTILIZED, obstacle=why)
            for i, why in sorted(self.blocked.items())
        )
        alone = () if self.best else tuple(r for i, r in sorted(self.unworthy.items()) if i not in self.blocked)
        return (*stuck, *alone)

    @property
    def action(self) -> Action | None:
        """The best found; None while nothing pays."""
        if not self.best:
            return None
        leaving = [self.rows[i] for i in self.best]
        before = float(self.ground.price[list(self.best)].sum())
        after = sum(c.cheapest.price for c in self.claims)
        pods = sum(len(c.pods) for c in leaving)
        came = f"{len(self.claims)} cheaper" if self.claims else "none"
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
        return Action(removals=removals, replacements=self.claims, savings=before - after)


def affordable(
    view: View, leaving: Sequence[Candidate], claims: Sequence[PlannedNodeClaim], price: float
) -> tuple[PlannedNodeClaim, ...] | None:
    """The claims with only such types as keep the whole a saving, whatever is launched; None: there is no such choice.

    Each may cost as much more than its cheapest as the improvement that is asked for leaves, in proportion.
    """
    planned = sum(c.cheapest.price for c in claims)
    limit = price * (1 - savings.IMPROVEMENT)
    if planned > limit or planned <= 0:
        return None
    kept: list[PlannedNodeClaim] = []
    for claim in claims:
        types = view.instance_types.get(claim.node_pool, ())
        trimmed = price_filter.within(claim, types, claim.cheapest.price * limit / planned)
        if trimmed is None:
            return None
        kept.append(trimmed)
    if len(leaving) == 1 and len(kept) == 1 and kept[0].cheapest.capacity_type == names.SPOT:
        was_spot = leaving[0].claim.metadata.labels.get(names.CAPACITY_TYPE) == names.SPOT
        if was_spot and len(kept[0].instance_types) < price_filter.LEAST_SPOT_CHOICE:
            return None
    return tuple(kept)
