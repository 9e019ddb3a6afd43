"""The comparison of both fleets over days, with exact dollars: what the terminal, the page and JSON show."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from shared.base.struct import WireStruct
from shared.shadow.ledger import FLEETS, UNPRICED, Fleet, Offering, exact_dollars, to_cents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shared.shadow.ledger import Day

_HOUR = 3600


class FleetCost(WireStruct, kw_only=True):
    """What a fleet cost: USD to the cent, instance-hours, and the hours of instances without a known price."""

    dollars: Decimal
    instance_hours: float
    unpriced_hours: float


class OfferingUse(WireStruct, kw_only=True):
    """How long a fleet ran instances of an offering, and what they cost in USD."""

    instance_type: str
    zone: str
    capacity_type: str
    fleet: Fleet
    instance_hours: float
    dollars: Decimal


class ShadowTotal(WireStruct, kw_only=True):
    """Both fleets over some days. ``saved`` is USD, negative where Tenon's fleet costs more."""

    real: FleetCost
    shadow: FleetCost
    unscaled: FleetCost
    saved: Decimal
    offerings: list[OfferingUse]
    seconds: int
    gap_seconds: int
    skipped_seconds: int
    runs: int
    adopted: int
    launched: int
    removed: dict[str, int]
    moved: int
    real_started: int
    real_ended: int
    waited_pods: int
    waited_seconds: int
    for_new_nodes: int
    unplaced_pods: int
    unplaced_seconds: int

    @property
    def saved_share(self) -> float | None:
        """The share of the real fleet's cost; None if that is nothing."""
        return float(self.saved / self.real.dollars) if self.real.dollars else None


def compare(days: Sequence[Day]) -> ShadowTotal:
    """The comparison over these days together."""
    costs = {fleet: _cost(days, fleet) for fleet in FLEETS}
    exact = {fleet: _dollars(days, fleet) for fleet in FLEETS}
    removed: Counter[str] = Counter()
    for day in days:
        removed.update(day.removed)

    def total(field: str) -> int:
        return sum(getattr(day, field) for day in days)

    sums = (
        "seconds", "gap_seconds", "skipped_seconds", "runs", "adopted", "launched", "moved", "real_started",
        "real_ended", "waited_pods", "waited_seconds", "for_new_nodes", "unplaced_pods", "unplaced_seconds",
    )  # fmt: skip
    return ShadowTotal(
        real=costs["real"],
        shadow=costs["shadow"],
        unscaled=costs["unscaled"],
        saved=to_cents(exact["real"] - exact["shadow"]),
        offerings=sorted(_offerings(days), key=_order),
        removed=dict(sorted(removed.items())),
        **{field: total(field) for field in sums},
    )


def _dollars(days: Iterable[Day], fleet: Fleet) -> Fraction:
    return sum((exact_dollars(day.usage, fleet) for day in days), Fraction())


def _cost(days: Sequence[Day], fleet: Fleet) -> FleetCost:
    return FleetCost(
        dollars=to_cents(_dollars(days, fleet)),
        instance_hours=round(sum(day.hours(fleet) for day in days), 2),
        unpriced_hours=round(sum(day.unpriced_seconds(fleet) for day in days) / _HOUR, 2),
    )


def _offerings(days: Iterable[Day]) -> Iterable[OfferingUse]:
    seconds: Counter[tuple[Fleet, Offering]] = Counter()
    dollars: dict[tuple[Fleet, Offering], Fraction] = {}
    for used in (used for day in days for used in day.usage):
        key = used.fleet, used.offering
        seconds[key] += used.seconds
        priced = Fraction(used.price) * used.seconds / _HOUR if used.price != UNPRICED else Fraction()
        dollars[key] = dollars.get(key, Fraction()) + priced
    for (fleet, offering), exact in dollars.items():
        yield OfferingUse(
            **msgspec.structs.asdict(offering),
            fleet=fleet,
            instance_hours=round(seconds[fleet, offering] / _HOUR, 2),
            dollars=to_cents(exact),
        )


def _order(use: OfferingUse) -> tuple[object, ...]:
    """The dearest first."""
    return -use.dollars, use.fleet, use.instance_type, use.zone, use.capacity_type
