"""The ledger of one day: how long what ran, and what Tenon would have run, at which price.

Money is exact: a day holds whole seconds by offering and price, never dollars. Dollars are their sum, computed once,
so that anyone can recompute them. Days are those of UTC. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import msgspec

from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Fleet = Literal["real", "shadow", "unscaled"]
"""What another autoscaler ran; what Tenon would have run instead; and what nobody scales, which both have."""
FLEETS: tuple[Fleet, ...] = ("real", "shadow", "unscaled")
UNPRICED = ""
"""Stands for a price that wasn't known."""
MAX_EVENTS = 2000
"""How many launches and removals one day keeps; more are only counted."""
MAX_PODS = 200
"""How many pods that couldn't be placed one day keeps; more are only counted."""
_CENT = Decimal("0.01")
_HOUR = 3600


class Offering(WireStruct, array_like=True, order=True):
    """Instance type, zone and capacity type of a node."""

    instance_type: str
    zone: str
    capacity_type: str

    def __str__(self) -> str:
        """As reports show it."""
        return f"{self.instance_type} {self.capacity_type} {self.zone}"


class Usage(msgspec.Struct, array_like=True):
    """Seconds of instances of one offering at one price (USD per hour, as text; :data:`UNPRICED`: not known)."""

    fleet: Fleet
    offering: Offering
    price: str
    seconds: int


class Event(WireStruct, array_like=True):
    """A node that Tenon would have launched or removed, or that it would have taken over (``adopted``).

    ``pods`` would have been placed on it, or moved. ``price`` is USD per hour, :data:`UNPRICED` if not known.
    """

    at: datetime
    action: Literal["adopted", "launched", "removed"]
    node: str
    pool: str
    offering: Offering
    price: str
    pods: int
    reason: str = ""


class UnplacedPod(msgspec.Struct, array_like=True):
    """A pod (namespace/name) that Tenon couldn't have placed, why, and for how many seconds of the day."""

    pod: str
    reason: str
    seconds: int = 0


class Sample(WireStruct, array_like=True):
    """What ran at a moment, and what would have: USD per hour and nodes, without what nobody scales."""

    at: datetime
    real: float
    shadow: float
    real_nodes: int
    shadow_nodes: int
    pods: int


class Day(msgspec.Struct, kw_only=True):
    """One day (UTC, as YYYY-MM-DD).

    ``seconds`` of it were counted, of these ``gap_seconds`` across missed runs: only their ends were seen.
    ``skipped_seconds`` weren't counted for either fleet. ``moved`` pods would have changed their node. ``waited_pods``
    waited ``waited_seconds`` together for a real node; ``for_new_nodes`` of Tenon's pods would have waited for one.
    """

    date: str
    runs: int = 0
    seconds: int = 0
    gap_seconds: int = 0
    skipped_seconds: int = 0
    usage: list[Usage] = []
    adopted: int = 0
    launched: int = 0
    removed: dict[str, int] = {}
    moved: int = 0
    real_started: int = 0
    real_ended: int = 0
    waited_pods: int = 0
    waited_seconds: int = 0
    for_new_nodes: int = 0
    unplaced: list[UnplacedPod] = []
    unplaced_pods: int = 0
    unplaced_seconds: int = 0
    events: list[Event] = []
    samples: list[Sample] = []

    def dollars(self, fleet: Fleet) -> Decimal:
        """What the fleet cost on this day in USD, to the cent."""
        return to_cents(exact_dollars(self.usage, fleet))

    def hours(self, fleet: Fleet) -> float:
        """Instance-hours of the fleet."""
        return sum(used.seconds for used in self.usage if used.fleet == fleet) / _HOUR

    def unpriced_seconds(self, fleet: Fleet) -> int:
        """For how many of its seconds no price was known; they aren't in the dollars."""
        return sum(used.seconds for used in self.usage if used.fleet == fleet and used.price == UNPRICED)


def exact_dollars(usage: Iterable[Usage], fleet: Fleet) -> Fraction:
    """USD of the fleet, exactly."""
    priced = (used for used in usage if used.fleet == fleet and used.price != UNPRICED)
    return sum((Fraction(used.price) * used.seconds / _HOUR for used in priced), Fraction())


def to_cents(dollars: Fraction) -> Decimal:
    """Rounded half up to the cent."""
    scaled = Decimal(dollars.numerator) / Decimal(dollars.denominator)
    return scaled.quantize(_CENT, rounding=ROUND_HALF_UP)


def price_text(price: float | None) -> str:
    """The price as the ledger keeps it: the shortest text that is this number."""
    return UNPRICED if price is None else format(Decimal(repr(price)), "f")


def by_day(begin: datetime, end: datetime) -> Iterator[tuple[str, int]]:
    """The days that a time span touches, each with its whole seconds of the span."""
    begin, end = begin.astimezone(UTC), end.astimezone(UTC)
    while begin < end:
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        until = min(midnight, end)
        yield date_of(begin), round((until - begin).total_seconds())
        begin = until


def date_of(moment: datetime) -> str:
    """The day of a moment, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d}"


class Ledger:
    """The days of a record, while one run adds to them."""

    def __init__(self, days: Iterable[Day]) -> None:
        self._days = {day.date: day for day in days}
        self._usage = {
            (day.date, used.fleet, used.offering, used.price): used for day in self._days.values() for used in day.usage
        }
        self._unplaced = {(day.date, pod.pod): pod for day in self._days.values() for pod in day.unplaced}

    @property
    def days(self) -> list[Day]:
        """All days, oldest first."""
        return [self._days[date] for date in sorted(self._days)]

    def day(self, moment: datetime) -> Day:
        """The day of a moment."""
        return self._of(date_of(moment))

    def _of(self, date: str) -> Day:
        return self._days.setdefault(date, Day(date=date))

    def observe(self, begin: datetime, end: datetime, *, gap: bool, skipped: bool) -> None:
        """Count a time span as observed, as a gap between runs that were missed, or as not counted at all."""
        for date, seconds in by_day(begin, end):
            day = self._of(date)
            if skipped:
                day.skipped_seconds += seconds
                continue
            day.seconds += seconds
            day.gap_seconds += seconds if gap else 0

    def use(self, fleet: Fleet, offering: Offering, price: float | None, begin: datetime, end: datetime) -> None:
        """Count a node that ran from ``begin`` to ``end`` at a price (USD per hour; None: not known)."""
        text = price_text(price)
        for date, seconds in by_day(begin, end):
            key = (date, fleet, offering, text)
            used = self._usage.get(key)
            if used is None:
                used = self._usage[key] = Usage(fleet, offering, text, 0)
                self._of(date).usage.append(used)
            used.seconds += seconds

    def add_event(self, event: Event) -> None:
        """Count a launch or removal of a virtual node, and keep it if there is room."""
        day = self.day(event.at)
        match event.action:
            case "adopted":
                day.adopted += 1
            case "launched":
                day.launched += 1
            case "removed":
                day.removed[event.reason] = day.removed.get(event.reason, 0) + 1
        if len(day.events) < MAX_EVENTS:
            day.events.append(event)

    def add_unplaced(self, pod: str, reason: str, begin: datetime, end: datetime) -> None:
        """Count a pod that couldn't be placed, from ``begin`` to ``end``."""
        for date, seconds in by_day(begin, end):
            day = self._of(date)
            day.unplaced_seconds += seconds
            known = self._unplaced.get((date, pod))
            if known is None:
                day.unplaced_pods += 1
                if len(day.unplaced) >= MAX_PODS:
                    continue
                known = self._unplaced[date, pod] = UnplacedPod(pod, reason)
                day.unplaced.append(known)
            known.seconds += seconds
            known.reason = reason
