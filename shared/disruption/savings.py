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
from shared.disruption.command import Obstacle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from shared.disruption.candidates import Candidate

IMPROVEMENT = 0.05
"""A replacement must be cheaper than what it replaces by at least this share."""
SHORTEST = timedelta(minutes=20)
"""For so long a saving is expected to last even on a node that was bought just now."""
SOON, LATER = timedelta(minutes=60), timedelta(hours=6)
"""Within which a move must pay back: soon as a rule, because loads that follow the day turn within hours; later where
nothing pays back soon and the pool has been quiet for so long."""
OVERLAP = timedelta(minutes=3)
"""How long old and new run side by side: a boot and a drain."""
BALANCE = 0.5
"""``consolidationPolicy: Balanced``: the share of the pools' price that is saved must be at least half of the share of
their pods' cost of moving that is spent. Source: Karpenter's Balanced policy."""
_HOUR = timedelta(hours=1)


class Worth(NamedTuple):
    """USD that an action is worth, 0 for none; what pays back soon is more than whatever pays back later."""

    soon: bool
    usd: float


NOTHING = Worth(soon=False, usd=0.0)
"""What doesn't pay is worth."""


class Span(NamedTuple):
    """For how many hours a saving is reckoned to last: ``soon`` for what comes first, ``later`` for what comes last."""

    soon: float
    later: float


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """What the pools that ask for ``Balanced`` have in all, USD per hour and USD to move everything."""

    price: float
    moving: float


@dataclass(frozen=True, kw_only=True)
class Deal:
    """Nodes that cost ``price`` go, ``replacements`` come (USD per hour), ``pods`` move, which costs ``moving`` USD.

    ``balanced`` is given where one of the nodes' pools asks for it.
    """

    price: float
    replacements: float
    span: Span
    pods: int
    moving: float
    balanced: Balanced | None = None

    @property
    def savings(self) -> float:
        """USD per hour."""
        return self.price - self.replacements

    @property
    def value(self) -> Worth:
        """What it is worth: nothing where it doesn't pay, or a rule forbids it."""
        if self._forbidden():
            return NOTHING
        once = self.moving + self.replacements * (OVERLAP / _HOUR)
        for soon, hours in ((True, self.span.soon), (False, self.span.later)):
            usd = self.savings * hours - once
            if usd > 0:
                return Worth(soon, usd)
        return NOTHING

    @property
    def obstacle(self) -> Obstacle:
        """Why it isn't done, for a person; what pays isn't done when something else pays more."""
        hours = max(self.span)
        message = self._forbidden() or (
            f"saves ${self.savings:.4f}/h, for about {hours:.1f} h, which is less than moving its {self.pods} pods and "
            f"running both for a while cost (${self.moving + self.replacements * (OVERLAP / _HOUR):.4f})"
        )
        return Obstacle(message=message)

    def _forbidden(self) -> str:
        if self.savings <= 0:
            return f"its pods would cost ${self.replacements:.4f}/h elsewhere; here they cost ${self.price:.4f}/h"
        if self.replacements and self.savings < IMPROVEMENT * self.price:
            return (
                f"a replacement would cost ${self.replacements:.4f}/h, which is less than {IMPROVEMENT:.0%} cheaper "
                f"than ${self.price:.4f}/h"
            )
        if self.balanced is not None and self._score(self.balanced) < BALANCE:
            return (
                f"consolidationPolicy Balanced: it would save {self.savings / self.balanced.price:.1%} of the price "
                f"and move {self.moving / self.balanced.moving:.1%} of the pods, by their cost"
            )
        return ""

    def _score(self, all_: Balanced) -> float:
        if not self.moving or all_.price <= 0 or all_.moving <= 0:
            return float("inf")
        return (self.savings / all_.price) / (self.moving / all_.moving)


def span(candidate: Candidate, *, quiet: timedelta, now: datetime) -> Span:
    """For how long what is saved on the node is expected to last; its pool has bought nothing for ``quiet``."""
    age = now - (candidate.claim.metadata.creation_timestamp or now)
    expires = expiration.expiry(candidate.claim)
    most = LATER if expires is None else min(LATER, max(expires - now, timedelta()))
    soon = min(max(age, SHORTEST), SOON, most)
    return Span(soon=soon / _HOUR, later=max(soon, min(age, quiet, most)) / _HOUR)


def together(spans: Sequence[Span], prices: Sequence[float]) -> Span:
    """The span of several nodes, weighted by their prices."""
    total = sum(prices)
    if total <= 0:
        return Span(0.0, 0.0)
    pairs = list(zip(spans, prices, strict=True))
    return Span(sum(s.soon * p for s, p in pairs) / total, sum(s.later * p for s, p in pairs) / total)
