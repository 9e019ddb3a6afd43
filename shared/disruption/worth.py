"""Whether consolidation pays: what is saved until the node would have gone anyway, against what moving costs.

A saving per hour is worth something only for as long as it lasts. A node is expected to be needed for as long again as
it has been there, within bounds, so what was bought minutes ago is left alone unless it is mostly empty, and what has
stood for hours is put right. That, and a threshold on the improvement, is what keeps a cluster from being churned.
The figures are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.disruption import expiration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from shared.disruption.candidates import Candidate

IMPROVEMENT = 0.05
"""A replacement must be cheaper than what it replaces by at least this share."""
SHORTEST, LONGEST = timedelta(minutes=20), timedelta(minutes=90)
"""Bounds of the time for which a saving is expected to last: loads that follow the day turn within hours."""
OVERLAP = timedelta(minutes=3)
"""How long old and new run side by side: a boot and a drain."""
BALANCE = 0.5
"""``consolidationPolicy: Balanced``: the share of the pools' price that is saved must be at least half of the share of
their pods' cost of moving that is spent. Source: Karpenter's Balanced policy."""
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """What the pools that ask for ``Balanced`` have in all, USD per hour and USD to move everything."""

    price: float
    moving: float


def hours_left(candidate: Candidate, now: datetime) -> float:
    """For how many hours what is saved on the node is expected to last."""
    age = now - (candidate.claim.metadata.creation_timestamp or now)
    expires = expiration.expiry(candidate.claim)
    longest = LONGEST if expires is None else min(LONGEST, max(expires - now, timedelta()))
    return min(max(age, SHORTEST), longest) / _HOUR


def pays(*, price: float, replacements: float, hours: float, moving: float, balanced: Balanced | None = None) -> float:
    """What an action is worth in USD; it pays when that is above zero.

    ``price`` is USD per hour of what goes, ``replacements`` of what comes, ``hours`` how long the saving lasts and
    ``moving`` USD for restarting the pods. Minus infinity where a rule forbids it.
    """
    savings = price - replacements
    if savings <= 0 or (replacements and savings < IMPROVEMENT * price):
        return float("-inf")
    if balanced is not None and balanced.price > 0 and balanced.moving > 0:
        score = (savings / balanced.price) / (moving / balanced.moving) if moving else float("inf")
        if score < BALANCE:
            return float("-inf")
    return savings * hours - moving - replacements * (OVERLAP / _HOUR)


def expected_hours(candidates: Sequence[Candidate], prices: Iterable[float], now: datetime) -> float:
    """The hours that a saving on all of them lasts, weighted by their prices."""
    weights = list(prices)
    total = sum(weights)
    if total <= 0:
        return SHORTEST / _HOUR
    return sum(hours_left(c, now) * w for c, w in zip(candidates, weights, strict=True)) / total
