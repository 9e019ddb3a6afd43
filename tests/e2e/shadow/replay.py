"""What a recorded day cost, computed again from the recording and from the list of launches and removals.

It shares no code with the ledger: it reads JSON, and adds up decimals per node and interval.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal, getcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from local.kubernetes.objects import Obj
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.shadow.ledger import Day

getcontext().prec = 50
_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
_CAPACITY, _POOL = "karpenter.sh/capacity-type", "karpenter.sh/nodepool"

Dollars = dict[str, Decimal]
"""USD by day."""


def cents(dollars: Decimal) -> Decimal:
    """To the cent."""
    return dollars.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)


def price(catalog: InstanceTypeCatalog, instance_type: str, zone: str, capacity_type: str) -> Decimal:
    """USD per hour."""
    if capacity_type == "spot":
        return Decimal(repr(catalog.spot[instance_type][zone]))
    return Decimal(repr(catalog.on_demand[instance_type]))


def add(dollars: Dollars, begin: float, end: float, per_hour: Decimal) -> None:
    """Add what a node cost between two times (seconds since the epoch), to the days on which it ran."""
    while begin < end:
        midnight = (begin // 86400 + 1) * 86400
        until = min(midnight, end)
        date = f"{datetime.fromtimestamp(begin, UTC):%Y-%m-%d}"
        dollars[date] = dollars.get(date, Decimal()) + per_hour * Decimal(until - begin) / 3600
        begin = until


def real_dollars(
    observed: Sequence[tuple[datetime, Mapping[str, Obj]]], catalogs: Sequence[InstanceTypeCatalog], *, scaled: bool
) -> Dollars:
    """What the nodes that an autoscaler scales (or those that nobody does) cost, from what each run could see.

    A node counts from its creation to the last run that saw it, at the prices of the run that counts.
    """
    dollars: Dollars = {}
    for i in range(1, len(observed)):
        (before, earlier), (now, later) = observed[i - 1], observed[i]
        for key, node in later.items():
            labels = node["metadata"].get("labels", {})
            if not key.startswith("Node/") or (_POOL in labels) != scaled:
                continue
            created = datetime.fromisoformat(node["metadata"]["creationTimestamp"]).timestamp()
            begin = before.timestamp() if key in earlier else max(before.timestamp(), created)
            capacity_type = labels.get(_CAPACITY, "on-demand")
            per_hour = price(catalogs[i], labels[_TYPE], labels[_ZONE], capacity_type)
            add(dollars, begin, now.timestamp(), per_hour)
    return dollars


def shadow_dollars(days: Iterable[Day], runs: Sequence[datetime], catalogs: Sequence[InstanceTypeCatalog]) -> Dollars:
    """What Tenon's nodes would have cost, from the list of what it took over, launched and removed."""
    events = sorted((event for day in days for event in day.events), key=lambda e: (e.at, e.action == "removed"))
    begins: dict[str, Any] = {}
    ends: dict[str, float] = {}
    for event in events:
        if event.action == "removed":
            ends[event.node] = event.at.timestamp()
        else:
            begins[event.node] = (event.at.timestamp(), event.offering)
    dollars: Dollars = {}
    for node, (begin, offering) in begins.items():
        end = ends.get(node, runs[-1].timestamp())
        for i in range(1, len(runs)):
            per_hour = price(catalogs[i], offering.instance_type, offering.zone, offering.capacity_type)
            add(
                dollars,
                max(begin, runs[i - 1].timestamp()),
                min(end, runs[i].timestamp()),
                per_hour,
            )
    return dollars
