"""Net savings of consolidation: what is saved for as long as that is likely to last, minus the disruption cost.

A node is expected to be needed for as long again as it has existed, within bounds. Commands that pay back soon come
before all that pay back later, so few pods move for most of the money. The others follow when nothing better is left
and the pool hasn't launched nodes for as long. That, and a minimum price improvement, prevents churn. The figures are
Tenon's; bench/consolidation.py and bench/steady_load.py measure their effect.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from shared.api.nodeclaim import expiration_time
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.disruption.command import Blocker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from shared.disruption.candidates import Candidate
    from shared.disruption.savings_evidence import SavingsEvidence

MIN_PRICE_IMPROVEMENT = 0.05
"""Replacements must be cheaper than what they replace by at least this share."""
MIN_SAVINGS_DURATION = timedelta(minutes=20)
"""Savings are expected to last at least this long, even on a node that was just launched."""
SHORT_PAYBACK, LONG_PAYBACK = timedelta(minutes=60), timedelta(hours=6)
"""The time within which a command must pay back. The short one comes first, because loads that follow the day change
within hours. The long one holds where nothing pays back soon and the pool hasn't launched nodes for that long."""
REPLACEMENT_OVERLAP = timedelta(minutes=3)
"""How long the old and the new node run side by side: a boot and a drain."""
MIN_BALANCED_RATIO = 0.5
"""``consolidationPolicy: Balanced``: the share of the pools' price that is saved must be at least half the share of
their disruption cost that is spent. Source: Karpenter's Balanced policy."""
_HOUR = timedelta(hours=1)
MAX_TIME_UNTIL_SAVINGS = timedelta(days=1)


class NetSavings(NamedTuple):
    """Net savings in USD, 0 for none. Short-term savings rank above all long-term ones."""

    short_term: bool
    usd: float


NO_SAVINGS = NetSavings(short_term=False, usd=0.0)
"""The net savings of an option that costs more than it saves."""


class SavingsDuration(NamedTuple):
    """How many hours savings are expected to last, bounded by the short and by the long payback time."""

    short_term: float
    long_term: float


class BalancedTotals(Struct, kw_only=True):
    """What all nodes of pools with policy ``Balanced`` cost: USD per hour, and USD to move all of their pods."""

    price: float
    disruption_cost: float


class ConsolidationOption(Struct, kw_only=True):
    """Nodes of ``price`` are replaced by others of ``replacement_price`` (USD per hour).

    ``pod_count`` pods move, for ``disruption_cost`` USD. ``balanced_totals`` is given where the policy of one of the
    nodes' pools is ``Balanced``. ``evidence`` says to users why savings last as long.
    """

    price: float
    replacement_price: float
    duration: SavingsDuration
    pod_count: int
    disruption_cost: float
    balanced_totals: BalancedTotals | None = None
    evidence: str = ""

    @property
    def savings(self) -> float:
        """USD per hour."""
        return self.price - self.replacement_price

    @property
    def net_savings(self) -> NetSavings:
        """Savings minus costs; none where that is negative or a rule forbids the option.

        >>> hours = SavingsDuration(short_term=1.0, long_term=6.0)
        >>> option = ConsolidationOption(
        ...     price=0.20, replacement_price=0.10, duration=hours, pod_count=3, disruption_cost=0.03
        ... )
        >>> option.net_savings.short_term, f"${option.net_savings.usd:.3f}"
        (True, '$0.065')
        """
        if self._rule_violation():
            return NO_SAVINGS
        for is_short_term, hours in ((True, self.duration.short_term), (False, self.duration.long_term)):
            usd = self.savings * hours - self._cost
            if usd > 0:
                return NetSavings(is_short_term, usd)
        return NO_SAVINGS

    @property
    def time_until_savings(self) -> timedelta:
        """How long there are no net savings, up to the maximum: no duration grows faster than time passes."""
        if self._rule_violation():
            return MAX_TIME_UNTIL_SAVINGS
        hours = self._cost / self.savings - max(self.duration)
        return _HOUR * min(max(hours, 0.0), MAX_TIME_UNTIL_SAVINGS / _HOUR)

    @property
    def blocker(self) -> Blocker:
        """Why the option isn't chosen, for users; call it only where there are no net savings."""
        message = self._rule_violation() or (
            f"saving ${self.savings:.4f}/h for an expected {max(self.duration):.1f} h"
            f"{f' ({self.evidence})' if self.evidence else ''} is less than the disruption cost of ${self._cost:.4f} "
            f"(moving {plural(self.pod_count, 'pod')}, and running both nodes for a while)"
        )
        return Blocker(message=message)

    @property
    def _cost(self) -> float:
        """USD, once: moving the pods, and running the replacements next to the old nodes."""
        return self.disruption_cost + self.replacement_price * (REPLACEMENT_OVERLAP / _HOUR)

    def _rule_violation(self) -> str:
        """The rule that forbids the option; empty when none does."""
        if self.savings <= 0:
            return f"replacements cost ${self.replacement_price:.4f}/h, which is not less than ${self.price:.4f}/h"
        if self.replacement_price and self.savings < MIN_PRICE_IMPROVEMENT * self.price:
            return (
                f"replacements cost ${self.replacement_price:.4f}/h, which is less than {MIN_PRICE_IMPROVEMENT:.0%} "
                f"cheaper than ${self.price:.4f}/h"
            )
        totals = self.balanced_totals
        if totals is not None and self._balanced_ratio(totals) < MIN_BALANCED_RATIO:
            return (
                f"consolidationPolicy Balanced: saving {self.savings / totals.price:.1%} of the price is too little "
                f"for {self.disruption_cost / totals.disruption_cost:.1%} of the disruption cost"
            )
        return ""

    def _balanced_ratio(self, totals: BalancedTotals) -> float:
        if not self.disruption_cost or totals.price <= 0 or totals.disruption_cost <= 0:
            return float("inf")
        return (self.savings / totals.price) / (self.disruption_cost / totals.disruption_cost)


def savings_duration(
    candidate: Candidate, *, time_since_launch: timedelta, now: datetime, evidence: SavingsEvidence | None = None
) -> SavingsDuration:
    """How long savings on the node are expected to last; ``time_since_launch`` and ``evidence`` are its pool's.

    With evidence, both durations are equal: it is known when the load returns, so the net savings alone decide.
    """
    created = candidate.claim.metadata.creation_timestamp or now
    age = now - created
    expires = expiration_time(candidate.claim)
    longest = LONG_PAYBACK if expires is None else min(LONG_PAYBACK, max(expires - now, timedelta()))
    if evidence is not None and evidence.applies_to(created):
        longest = min(longest, evidence.duration)
        if not evidence.is_limit:
            return SavingsDuration(short_term=longest / _HOUR, long_term=longest / _HOUR)
    short_term = min(max(age, MIN_SAVINGS_DURATION), SHORT_PAYBACK, longest)
    long_term = max(short_term, min(age, time_since_launch, longest))
    return SavingsDuration(short_term=short_term / _HOUR, long_term=long_term / _HOUR)


def combined_duration(durations: Sequence[SavingsDuration], prices: Sequence[float]) -> SavingsDuration:
    """The duration for several nodes, weighted by their prices (USD per hour).

    >>> combined_duration([SavingsDuration(1, 6), SavingsDuration(0.5, 2)], prices=[3, 1])
    SavingsDuration(short_term=0.875, long_term=5.0)
    """
    total = sum(prices)
    if total <= 0:
        return SavingsDuration(0.0, 0.0)
    weighted = list(zip(durations, prices, strict=True))
    return SavingsDuration(
        short_term=sum(d.short_term * price for d, price in weighted) / total,
        long_term=sum(d.long_term * price for d, price in weighted) / total,
    )
