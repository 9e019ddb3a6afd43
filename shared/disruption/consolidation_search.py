"""The consolidation search: evaluates sets of candidates by simulated scheduling, and keeps the best.

Each set is evaluated once. For a single node that doesn't save enough, it keeps why, for users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api import labels as names
from shared.base.plurals import plural
from shared.base.struct import MutableStruct
from shared.disruption import price_filter
from shared.disruption.command import UNDERUTILIZED, BlockedCandidate, Blocker, Command
from shared.disruption.savings import (
    MAX_TIME_UNTIL_SAVINGS,
    MIN_PRICE_IMPROVEMENT,
    NO_SAVINGS,
    ConsolidationOption,
    combined_duration,
)
from shared.disruption.simulated_scheduling import simulate_scheduling

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from numpy.typing import NDArray

    from shared.disruption.candidate_matrix import CandidateMatrix
    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState
    from shared.disruption.savings import BalancedTotals, NetSavings, SavingsDuration
    from shared.scheduling.decision import PlannedNodeClaim

BALANCED = "Balanced"


class ConsolidationSearch(MutableStruct, kw_only=True):
    """The candidates, and the best set of them so far with its replacements.

    ``durations`` are the candidates' own, ``balanced_totals`` those of all nodes of pools with policy Balanced. Sets
    are sorted rows of ``candidates``.
    """

    state: DisruptionState
    candidates: Sequence[Candidate]
    matrix: CandidateMatrix
    durations: Sequence[SavingsDuration]
    balanced_totals: BalancedTotals
    best: tuple[int, ...] = ()
    replacements: tuple[PlannedNodeClaim, ...] = ()
    net_savings: NetSavings = NO_SAVINGS
    evaluated: set[tuple[int, ...]] = set()
    blockers: dict[int, Blocker] = {}
    unprofitable: dict[int, BlockedCandidate] = {}
    time_until_savings: timedelta = MAX_TIME_UNTIL_SAVINGS
    """How long none of the evaluated sets pays back: expected savings last longer with time."""

    def evaluate(self, rows: Sequence[int]) -> bool:
        """Simulate removing these candidates; whether that is the best set so far."""
        key = tuple(sorted(rows))
        if not key or key in self.evaluated:
            return False
        self.evaluated.add(key)
        removed = [self.candidates[i] for i in key]
        if not self.state.pod_disruption_budgets.allow_together([c.pods for c in removed]):
            return False
        simulation = simulate_scheduling(self.state, removed)
        if not simulation.all_scheduled:
            blockers = ((i, simulation.blocker(self.candidates[i])) for i in key)
            self.blockers.update({i: blocker for i, blocker in blockers if blocker is not None})
            return False
        return self._compare(key, simulation.node_claims)

    def _compare(self, key: tuple[int, ...], planned: tuple[PlannedNodeClaim, ...]) -> bool:
        """Keep the set if its net savings are higher than the best's; whether they are."""
        option = self._option(key, planned)
        net_savings = option.net_savings
        if net_savings == NO_SAVINGS:
            self.time_until_savings = min(self.time_until_savings, option.time_until_savings)
            return self._reject(key, option, option.blocker)
        replacements = affordable_replacements(self.state, [self.candidates[i] for i in key], planned, option.price)
        if replacements is None:
            blocker = Blocker(message="too few instance types are cheap enough for the replacements")
            return self._reject(key, option, blocker)
        if net_savings <= self.net_savings:
            return False
        self.best, self.replacements, self.net_savings = key, replacements, net_savings
        return True

    def _option(self, key: tuple[int, ...], planned: tuple[PlannedNodeClaim, ...]) -> ConsolidationOption:
        removed = [self.candidates[i] for i in key]
        prices = [float(self.matrix.price[i]) for i in key]
        is_balanced = any(c.pool.spec.disruption.consolidation_policy == BALANCED for c in removed)
        return ConsolidationOption(
            price=sum(prices),
            replacement_price=sum(c.cheapest.effective_price for c in planned),
            duration=combined_duration([self.durations[i] for i in key], prices),
            pod_count=sum(len(c.pods) for c in removed),
            disruption_cost=float(self.matrix.disruption_cost[list(key)].sum()),
            balanced_totals=self.balanced_totals if is_balanced else None,
            evidence=self._evidence(removed),
        )

    def _evidence(self, removed: Sequence[Candidate]) -> str:
        """Why savings on these nodes last as long as expected, by NodePool; empty without evidence."""
        evidence = ((self.state.evidence.get(c.pool.name), c.claim.metadata.creation_timestamp) for c in removed)
        return "; ".join(sorted({e.why for e, created in evidence if e is not None and e.applies_to(created)}))

    def _reject(self, key: tuple[int, ...], option: ConsolidationOption, blocker: Blocker) -> bool:
        """Keep why a single node isn't consolidated; always False."""
        if len(key) == 1:
            self.unprofitable[key[0]] = self.candidates[key[0]].blocked(
                blocker, reason=UNDERUTILIZED, savings=option.savings
            )
        return False

    @property
    def deletion_values(self) -> NDArray[np.float64]:
        """USD that deleting each candidate saves for as long as that lasts, minus its disruption cost."""
        hours = np.array([d.long_term for d in self.durations], np.float64)
        return self.matrix.price * hours - self.matrix.disruption_cost

    @property
    def blocked_candidates(self) -> tuple[BlockedCandidate, ...]:
        """The blocked candidates, and, where no set saves enough, those that were evaluated alone."""
        blocked = tuple(
            self.candidates[i].blocked(blocker, reason=UNDERUTILIZED) for i, blocker in sorted(self.blockers.items())
        )
        unprofitable = sorted(self.unprofitable.items()) if not self.best else []
        return (*blocked, *(candidate for i, candidate in unprofitable if i not in self.blockers))

    @property
    def command(self) -> Command | None:
        """The command for the best set; None while no set saves enough."""
        if not self.best:
            return None
        removed = [self.candidates[i] for i in self.best]
        price = float(self.matrix.price[list(self.best)].sum())
        replacement_price = sum(c.cheapest.effective_price for c in self.replacements)
        savings = price - replacement_price
        nodes = f"{plural(len(removed), 'node')} at ${price:.4f}/h"
        verb = f"replaced by {len(self.replacements)} at ${replacement_price:.4f}/h" if self.replacements else "deleted"
        pod_count = sum(len(c.pods) for c in removed)
        message = f"{nodes} {verb}: saves ${savings:.4f}/h, moves {plural(pod_count, 'pod')}"
        if evidence := self._evidence(removed):
            hours = combined_duration(
                [self.durations[i] for i in self.best], self.matrix.price[list(self.best)].tolist()
            )
            message += f"; {evidence}, expected to last {hours.long_term:.1f} h"
        removals = tuple(c.removal(reason=UNDERUTILIZED, message=message) for c in removed)
        return Command(removals=removals, replacements=self.replacements, savings=savings)


def affordable_replacements(
    state: DisruptionState, removed: Sequence[Candidate], planned: Sequence[PlannedNodeClaim], price: float
) -> tuple[PlannedNodeClaim, ...] | None:
    """The planned claims with only those types that save money whatever is launched; None: that isn't possible.

    ``price`` is USD per hour of the removed nodes. Each claim may cost more than its cheapest offering by the same
    factor, up to what the minimum price improvement leaves. Those that a commitment pays are narrowed already.
    """
    if not planned:
        return ()
    planned_price = sum(c.cheapest.effective_price for c in planned)
    limit = price * (1 - MIN_PRICE_IMPROVEMENT)
    if planned_price > limit or planned_price <= 0:
        return None
    replacements: list[PlannedNodeClaim] = []
    for claim in planned:
        if claim.is_committed:
            replacements.append(claim)
            continue
        types = state.instance_types.get(claim.node_pool, ())
        filtered = price_filter.filter_by_price(claim, types, claim.cheapest.effective_price * limit / planned_price)
        if filtered is None:
            return None
        replacements.append(filtered)
    if len(removed) == 1 and len(replacements) == 1 and _is_spot_to_spot(removed[0], replacements[0]):
        return (
            tuple(replacements) if len(replacements[0].instance_types) >= price_filter.MIN_SPOT_INSTANCE_TYPES else None
        )
    return tuple(replacements)


def _is_spot_to_spot(removed: Candidate, replacement: PlannedNodeClaim) -> bool:
    is_spot = removed.claim.metadata.labels.get(names.CAPACITY_TYPE) == names.SPOT
    return is_spot and replacement.cheapest.capacity_type == names.SPOT
