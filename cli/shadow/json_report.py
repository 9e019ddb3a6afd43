"""The output of ``tenon shadow report --json``. Dollars are texts with cents, so that they stay exact."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from cli.shadow.comparison import ShadowTotal, compare
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from cli.shadow.days import ShadowDays
    from shared.shadow.ledger import Day, Event


class Unplaced(WireStruct, kw_only=True):
    """A pod (namespace/name) that Tenon couldn't have placed, why, and for how long."""

    pod: str
    reason: str
    seconds: int


class ShadowEvent(WireStruct, kw_only=True):
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


class ShadowDay(ShadowTotal, frozen=True, kw_only=True):
    """Both fleets on a day (UTC, YYYY-MM-DD)."""

    date: str
    unplaced: list[Unplaced]
    events: list[ShadowEvent]


class ShadowReport(WireStruct, kw_only=True):
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
        total=compare(shadow.days),
        days=[_day(day) for day in shadow.days],
    )


def _day(day: Day) -> ShadowDay:
    return ShadowDay(
        date=day.date,
        **msgspec.structs.asdict(compare([day])),
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
