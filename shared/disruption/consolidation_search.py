"""What giving up a set of nodes is worth: its pods are placed by the scheduling core, and the best set is kept.

Every set that is asked about is asked once. Of a single node that doesn't pay it is remembered why, for people.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.disruption import price_filter, savings
from shared.disruption.command import UNDERUTILIZED, BlockedCandidate, Blocker, Command, Removal
from shared.disruption.simulated_scheduling import simulate_scheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.disruption.candidate_matrix import CandidateMatrix
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState
    from shared.disruption.savings import BalancedTotals, NetSavings, SavingsDuration
    from shared.scheduling.decision import PlannedNodeClaim

BALANCED = "Balanced"


@dataclass(kw_only=True)
class ConsolidationSearch:
    """The candidates and what has been found among them so far. ``spans`` are theirs, ``balanced`` is all they have."""

    cluster_state: ClusterState
    candidates: Sequence[Candidate]
    matrix: CandidateMatrix
    durations: Sequence[SavingsDuration]
    balanced_totals: BalancedTotals
    best: tuple[int, ...] = ()
    replacements: tuple[PlannedNodeClaim, ...] = ()
    net_savings: NetSavings = savings.NO_SAVINGS
    evaluated: set[tuple[int, ...]] = field(default_factory=set)
    blockers: dict[int, Blocker] = field(default_factory=dict)
    unprofitable: dict[int, BlockedCandidate] = field(default_factory=dict)

    def evaluate(self, chosen: Sequence[int]) -> bool:
        """Weigh giving up these rows; whether it is the best so far."""
        key = tuple(sorted(chosen))
        if not key or key in self.evaluated:
            return False
        self.evaluated.add(key)
        leaving = [self.candidates[i] for i in key]
        if not self.cluster_state.pod_disruption_budgets.allow_together([c.pods for c in leaving]):
            return False
        placing = simulate_scheduling(self.cluster_state, leaving)
        if placing.unschedulable or placing.needs_uninitialized_nodes:
            found = {i: o for i in key if (o := placing.blocker(self.candidates[i])) is not None}
            self.blockers.update(found)
            return False
        return self._weigh(key, leaving, placing.node_claims)

    def _weigh(self, key: tuple[int, ...], leaving: Sequence[Candidate], planned: tuple[PlannedNodeClaim, ...]) -> bool:
        prices = [float(self.matrix.price[i]) for i in key]
        balanced = any(c.pool.spec.disruption.consolidation_policy == BALANCED for c in leaving)
        deal = savings.ConsolidationOption(
            price=sum(prices),
            replacement_price=sum(c.cheapest.price for c in planned),
            duration=savings.combined_duration([self.durations[i] for i in key], prices),
            pod_count=sum(len(c.pods) for c in leaving),
            disruption_cost=float(self.matrix.disruption_cost[list(key)].sum()),
            balanced_totals=self.balanced_totals if balanced else None,
        )
        value = deal.net_savings
        obstacle = deal.blocker
        claims: tuple[PlannedNodeClaim, ...] | None = ()
        if value > savings.NO_SAVINGS and planned:
            claims = affordable_replacements(self.cluster_state, leaving, planned, deal.price)
            if claims is None:
                value, obstacle = (
                    savings.NO_SAVINGS,
                    Blocker(message="too few types are cheap enough for what might be launched"),
                )
        if value == savings.NO_SAVINGS or claims is None:
            if len(key) == 1:
                self._refuse(key[0], obstacle, deal)
            return False
        if value <= self.net_savings:
            return False
        self.best, self.claims, self.net_savings = key, claims, value
        return True

    def _refuse(self, row: int, obstacle: Blocker, deal: savings.ConsolidationOption) -> None:
        candidate = self.candidates[row]
        self.unprofitable[row] = BlockedCandidate(
            claim=candidate.claim.name,
            node=candidate.name,
            reason=UNDERUTILIZED,
            blocker=obstacle,
            savings=deal.savings,
            pods=deal.pod_count,
        )

    @property
    def blocked_candidates(self) -> tuple[BlockedCandidate, ...]:
        """The rows that can't go, and, where nothing pays, those that were asked about alone."""
        stuck = tuple(
            BlockedCandidate(
                claim=self.candidates[i].claim.name, node=self.candidates[i].name, reason=UNDERUTILIZED, blocker=why
            )
            for i, why in sorted(self.blockers.items())
        )
        alone = () if self.best else tuple(r for i, r in sorted(self.unprofitable.items()) if i not in self.blockers)
        return (*stuck, *alone)

    @property
    def command(self) -> Command | None:
        """The best found; None while nothing pays."""
        if not self.best:
            return None
        leaving = [self.candidates[i] for i in self.best]
        before = float(self.matrix.price[list(self.best)].sum())
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
        return Command(removals=removals, replacements=self.claims, savings=before - after)


def affordable_replacements(
    view: ClusterState, leaving: Sequence[Candidate], claims: Sequence[PlannedNodeClaim], price: float
) -> tuple[PlannedNodeClaim, ...] | None:
    """The claims with only such types as keep the whole a saving, whatever is launched; None: there is no such choice.

    Each may cost as much more than its cheapest as the improvement that is asked for leaves, in proportion.
    """
    planned = sum(c.cheapest.price for c in claims)
    limit = price * (1 - savings.MIN_PRICE_IMPROVEMENT)
    if planned > limit or planned <= 0:
        return None
    kept: list[PlannedNodeClaim] = []
    for claim in claims:
        types = view.instance_types.get(claim.node_pool, ())
        trimmed = price_filter.filter_by_price(claim, types, claim.cheapest.price * limit / planned)
        if trimmed is None:
            return None
        kept.append(trimmed)
    if len(leaving) == 1 and len(kept) == 1 and kept[0].cheapest.capacity_type == names.SPOT:
        was_spot = leaving[0].claim.metadata.labels.get(names.CAPACITY_TYPE) == names.SPOT
        if was_spot and len(kept[0].instance_types) < price_filter.MIN_SPOT_INSTANCE_TYPES:
            return None
    return tuple(kept)
