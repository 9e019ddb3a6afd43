"""The monthly cost of a cluster of a fleet: its own items of the bill, and its share of what the fleet's stack has."""

from __future__ import annotations

import statistics
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from bench.cost_model import AWS_SECONDS, COLD_SECONDS, COLD_STARTS, FULL_VCPU, HOURS, MEASURED, PHASE_HOURS, Month
from infra import function_sizes
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from bench.cost_model import BillItem, Measured

CLUSTERS = 50
_CHECKS = 60 * HOURS
"""The catalog function of the fleet looks at its clusters each minute."""
_CHECK_SECONDS = 0.015
"""Duration of a check without waiting, with that of the local AWS (``python -m bench.fleet_cost``)."""
_CHECK_CALLS = 2
_SWEEP_RECORDS = 12 * HOURS
_QUEUE_READS = 12 * HOURS
"""Of one queue for dead letters, by its cluster."""


def office(measured: Measured) -> Month:
    """The month of the smallest measured cluster, in office hours."""
    return Month(measured, min(measured))


def idle(measured: Measured) -> Month:
    """The same cluster when it is night all month: nothing changes in it."""
    smallest = min(measured)
    return Month({smallest: dict.fromkeys(PHASE_HOURS, measured[smallest]["night"])}, smallest)


def alone(month: Month) -> list[BillItem]:
    """The bill of the cluster without a fleet, and without the relay."""
    return [item for item in month.lines() if not item.name.startswith("relay")]


def of_fleet(month: Month, clusters: int = CLUSTERS) -> list[BillItem]:
    """The bill of one of the ``clusters`` of a fleet, without the relay.

    Raises:
        KeyError: the bill has no item of that name any more.
    """
    size = function_sizes.SIZES[function_sizes.CATALOG]
    gib, share = size.memory / 1024, min(1.0, size.memory / FULL_VCPU)
    check_seconds = _CHECKS * (_CHECK_SECONDS / share + _CHECK_CALLS * AWS_SECONDS)
    refreshes = month.count("catalog invocations")
    cold = COLD_STARTS / len(MEASURED) * COLD_SECONDS * gib
    bill = {item.name: item for item in alone(month)}

    def change(name: str, details: str, *, own: float = 0, shared: float = 0) -> None:
        bill[name] = with_fields(bill[name], amount=own + shared / clusters, details=details)

    def amount(name: str) -> float:
        return bill[name].amount

    part = f"1/{clusters} of the fleet's"
    function = f"{part} catalog function"
    calls = refreshes + _CHECKS
    change("catalog: running", part, shared=amount("catalog: running") + check_seconds * gib)
    change("cold starts", f"{function}'s", own=amount("cold starts") - cold, shared=cold)
    change("invocations", function, own=amount("invocations") - refreshes, shared=calls)
    change("catalog, writes", part, shared=amount("catalog, writes"))
    change("alarm", part, shared=amount("alarm"))
    dead_letters = amount("dead-letter queues") - _QUEUE_READS
    looked_at = "looked at every five minutes; the fleet's queue each minute"
    change("dead-letter queues", looked_at, own=dead_letters, shared=_CHECKS)
    events = "hints and scheduled events"
    change(events, "", own=amount(events) - refreshes, shared=calls)
    change("table, writes", "with its last sweeps", own=amount("table, writes") + _SWEEP_RECORDS)
    change("table, reads", "with the fleet's of last sweeps", own=amount("table, reads"), shared=_CHECKS)
    return list(bill.values())


def usd(items: list[BillItem]) -> float:
    """The sum, USD a month."""
    return sum(item.usd for item in items)


def section(measured: Measured) -> str:
    """The section "Fleets" of docs/cost-model.md."""
    office_month, idle_month = office(measured), idle(measured)
    nodes = min(measured)
    lines = "\n".join(
        f"| {own.name} | {own.usd:.3f} | {shared.usd:.3f} | {shared.details} |"
        for own, shared in zip(alone(idle_month), of_fleet(idle_month), strict=True)
    )
    idle_alone, idle_fleet = usd(alone(idle_month)), usd(of_fleet(idle_month))
    office_alone, office_fleet = usd(alone(office_month)), usd(of_fleet(office_month))
    return f"""## Fleets

The clusters of a fleet (`-c fleet=NAME`, [fleets](fleets.md)) share the catalog and its function, the alarm and the \
queue of undelivered events. One of {CLUSTERS} clusters, without the relay, USD a month, by the same method (the \
smallest measured cluster has {nodes} nodes by day; idle: its night, all month):

| a cluster of {nodes} nodes | alone | one of {CLUSTERS} |
|---|---|---|
| idle all month | {idle_alone:.2f} | **{idle_fleet:.2f}** |
| office hours | {office_alone:.2f} | **{office_fleet:.2f}** |

With `-c observability=full` the fleet has one dashboard and no alarms by symptom; metrics are each cluster's.

| item of the idle cluster | alone | one of {CLUSTERS} | |
|---|---|---|---|
{lines}
| **total** | **{idle_alone:.3f}** | **{idle_fleet:.3f}** | |
"""


def main() -> None:
    """Print the median duration of the check, in seconds."""
    from local.world.fleet_world import FleetWorld  # noqa: PLC0415 (the cost model doesn't need it)

    with FleetWorld(fleet="prod", clusters=("blue", "green")) as world:
        world.run_for(timedelta(minutes=20))
        checks = [i.latency for i in world.invocations("", "catalog") if i.event == {"check": "fleet"}]
    sys.stdout.write(f"{statistics.median(checks):.4f} s, of {len(checks)}\n")


if __name__ == "__main__":
    main()
