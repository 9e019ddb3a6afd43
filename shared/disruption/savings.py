"""Whether consolidation pays: what is saved for as long as that is likely to last, against what moving costs.

A node is expected to be needed for as long again as it has been there, within bounds. What pays back soon comes before
everything that only pays back later: so few pods move for most of the money, and the rest is put right when nothing
better is left and the pool has bought nothing for as long. That, and a threshold on the improvement, is what keeps a
cluster from being churned. The figures are ours; bench/consolidation.py and bench/steady_load.py measure what they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from shared.disruption import expiration
from shared.disruption.command import Blocker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from shared.disruption.candidates import Candidate

MIN_PRICE_IMPROVEMENT = 0.05
"""A replacement must be cheaper than what it replaces by at least this share."""
MIN_SAVINGS_DURATION = timedelta(minutes=20)
"""For so long a saving is expected to last even on a node that was bought just now."""
SHORT_PAYBACK, LONG_PAYBACK = timedelta(minutes=60), timedelta(hours=6)
"""Within which a move must pay back: soon as a rule, because loads that follow the day turn within hours; later where
nothing pays back soon and the pool has been quiet for so long."""
REPLACEMENT_OVERLAP = timedelta(minutes=3)
"""How long old and new run side by side: a boot and a drain."""
MIN_BALANCED_RATIO = 0.5
"""``consolidationPolicy: Balanced``: the share of the pools' price that is saved must be at least half of the share of
their pods' cost of moving that is spent. Source: Karpenter's Balanced policy."""
_HOUR = timedelta(hours=1)


class NetSavings(NamedTuple):
    """USD that an action is worth, 0 for none; what pays back soon is more than whatever pays back later."""

    short_term: bool
    usd: float


NO_SAVINGS = NetSavings(short_term=False, usd=0.0)
"""What doesn't pay is worth."""


class SavingsDuration(NamedTuple):
    """For how many hours a saving is reckoned to last: ``soon`` for what comes first, ``later`` for what comes last."""

    short_term: float
    long_term: float


@dataclass(frozen=True, kw_only=True)
class BalancedTotals:
    """What the pools that ask for ``Balanced`` have in all, USD per hour and USD to move everything."""

    price: float
    disruption_cost: float


@dataclass(frozen=True, kw_only=True)
class ConsolidationOption:
    """Nodes that cost ``price`` go, ``replacements`` come (USD per hour), ``pods`` move, which costs ``moving`` USD.

    ``balanced`` is given where one of the nodes' pools asks for it.
    """

    price: float
    replacement_price: float
    duration: SavingsDuration
    pod_count: int
    disruption_cost: float
    balanced_totals: BalancedTotals | None = None

    @property
    def savings(self) -> float:
        """USD per hour."""
        return self.price - self.replacement_price

    @property
    def net_savings(self) -> NetSavings:
        """What it is worth: nothing where it doesn't pay, or a rule forbids it."""
        if self._forbidden():
            return NO_SAVINGS
        once = self.disruption_cost + self.replacement_price * (REPLACEMENT_OVERLAP / _HOUR)
        for soon, hours in ((True, self.duration.short_term), (False, self.duration.long_term)):
            usd = self.savings * hours - once
            if usd > 0:
                return NetSavings(soon, usd)
        return NO_SAVINGS

    @property
    def blocker(self) -> Blocker:
        """Why it isn't done, for a person; what pays isn't done when something else pays more."""
        hours = max(self.duration)
        cost = self.disruption_cost + self.replacement_price * (REPLACEMENT_OVERLAP / _HOUR)
        message = self._forbidden() or (
            f"saving ${self.savings:.4f}/h for an expected {hours:.1f} h is less than the disruption cost of "
            f"${cost:.4f} (moving {self.pod_count} pods, and running both for a while)"
        )
        return Blocker(message=message)

    def _forbidden(self) -> str:
        if self.savings <= 0:
            return f"its pods would cost ${self.replacement_price:.4f}/h elsewhere; here they cost ${self.price:.4f}/h"
        if self.replacement_price and self.savings < MIN_PRICE_IMPROVEMENT * self.price:
            return (
                f"replacements at ${self.replacement_price:.4f}/h are less than {MIN_PRICE_IMPROVEMENT:.0%} cheaper "
                f"than ${self.price:.4f}/h"
            )
        if self.balanced_totals is not None and self._score(self.balanced_totals) < MIN_BALANCED_RATIO:
            return (
                "consolidationPolicy Balanced: the share of the price saved "
                f"({self.savings / self.balanced_totals.price:.1%}) is too small for the share of the disruption cost "
                f"({self.disruption_cost / self.balanced_totals.disruption_cost:.1%})"
            )
        return ""

    def _score(self, all_: BalancedTotals) -> float:
        if not self.disruption_cost or all_.price <= 0 or all_.disruption_cost <= 0:
            return float("inf")
        return (self.savings / all_.price) / (self.disruption_cost / all_.disruption_cost)


def savings_duration(candidate: Candidate, *, quiet: timedelta, now: datetime) -> SavingsDuration:
    """For how long what is saved on the node is expected to last; its pool has bought nothing for ``quiet``."""
    age = now - (candidate.claim.metadata.creation_timestamp or now)
    expires = expiration.expiration_time(candidate.claim)
    most = LONG_PAYBACK if expires is None else min(LONG_PAYBACK, max(expires - now, timedelta()))
    soon = min(max(age, MIN_SAVINGS_DURATION), SHORT_PAYBACK, most)
    return SavingsDuration(short_term=soon / _HOUR, long_term=max(soon, min(age, quiet, most)) / _HOUR)


def combined_duration(spans: Sequence[SavingsDuration], prices: Sequence[float]) -> SavingsDuration:
    """The span of several nodes, weighted by their prices."""
    total = sum(prices)
    if total <= 0:
        return SavingsDuration(0.0, 0.0)
    pairs = list(zip(spans, prices, strict=True))
    return SavingsDuration(
        sum(s.short_term * p for s, p in pairs) / total, sum(s.long_term * p for s, p in pairs) / total
    )
