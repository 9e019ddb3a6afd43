"""The output of ``tenon shadow report --json``. Dollars are texts with cents, so that they stay exact."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from cli.shadow.comparison import Comparison, FleetCost, compare
from shared.shadow.ledger import Fleet

if TYPE_CHECKING:
    from cli.shadow.days import ShadowDays
    from shared.shadow.ledger import Day, Event


class OfferingUse(msgspec.Struct, frozen=True, kw_only=True):
    """How long a fleet ran instances of an offering, and what they cost in USD."""

    instance_type: str
    zone: str
    capacity_type: str
    fleet: Fleet
    instance_hours: float
    dollars: Decimal


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A pod (namespace/name) that Tenon couldn't have placed, why, and for how long."""

    pod: str
    reason: str
    seconds: int


class ShadowEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A node that Tenon would have adopted, launched or removed. ``price`` is USD per hour as text, "" if unknown."""

    at: datetime
    action: str
    node: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: str
    pods: int
    reason: str


class ShadowTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Both fleets over all days. ``saved`` is USD, negative where Tenon's fleet costs more."""

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


class ShadowDay(ShadowTotal, frozen=True, kw_only=True):
    """Both fleets on a day (UTC, YYYY-MM-DD)."""

    date: str
    unplaced: list[Unplaced]
    events: list[ShadowEvent]


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ran and what Tenon would have run: in total and by day."""

    cluster: str
    since: datetime | None
    at: datetime | None
    notes: list[str]
    total: ShadowTotal
    days: list[ShadowDay]


def output(shadow: ShadowDays) -> ShadowReport:
    """The whole comparison."""
    return ShadowReport(
        cluster=shadow.cluster,
        since=shadow.record.since,
        at=shadow.record.at,
        notes=list(shadow.record.notes),
        total=ShadowTotal(**_figures(compare(shadow.days))),
        days=[_day(day) for day in shadow.days],
    )


def _day(day: Day) -> ShadowDay:
    return ShadowDay(
        date=day.date,
        **_figures(compare([day])),
        unplaced=[Unplaced(pod=p.pod, reason=p.reason, seconds=p.seconds) for p in day.unplaced],
        events=[_event(event) for event in day.events],
    )


def _event(event: Event) -> ShadowEvent:
    return ShadowEvent(
        at=event.at,
        action=event.action,
        node=event.node,
        node_pool=event.pool,
        **msgspec.structs.asdict(event.offering),
        price=event.price,
        pods=event.pods,
        reason=event.reason,
    )


def _figures(comparison: Comparison) -> dict[str, Any]:
    """The fields; an offering's beside its cost."""
    uses = [
        OfferingUse(
            **msgspec.structs.asdict(o.offering), fleet=o.fleet, instance_hours=o.instance_hours, dollars=o.dollars
        )
        for o in comparison.offerings
    ]
    return {**msgspec.structs.asdict(comparison), "offerings": uses}
