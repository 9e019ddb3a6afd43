"""The traffic between zones in the text of ``tenon plan``: one line, and the Services that are worth a look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from cli import terminal
from cli.traffic.cross_zone import USD_PER_CROSSING_TB
from cli.traffic.wording import LEAST_SHARE, percent, same_zone

if TYPE_CHECKING:
    from rich.console import Console

    from cli.plan.traffic import PlannedTraffic

_MAX_SERVICES = 5


def summary(traffic: PlannedTraffic) -> str:
    """The line on all Services."""
    if traffic.problem:
        return f"cross-zone traffic: not known: {traffic.problem}"
    before, after = percent(traffic.before.share), percent(traffic.after.share)
    text = f"cross-zone traffic: {before} of evenly distributed Service traffic crosses zones now"
    if after != before:
        text += f", {after} after this plan"
    return f"{text} (${USD_PER_CROSSING_TB:g} per TB that crosses)"


def show_services(console: Console, traffic: PlannedTraffic) -> None:
    """Print the Services whose share the plan changes, or that could keep traffic in its zone."""
    rows = [c for c in traffic.changes if abs(c.change) >= LEAST_SHARE or c.latest.avoidable_share >= LEAST_SHARE]
    if not rows:
        return
    console.print()
    console.print(terminal.title("Traffic between zones", "where clients are spread as the cluster's pods"))
    table = terminal.table(
        "service", "endpoints", "crosses now", "after", "$/TB after", "with PreferSameZone",
        right=("endpoints", "crosses now", "after", "$/TB after"), optional=("endpoints", "$/TB after"),
    )  # fmt: skip
    for change in rows[:_MAX_SERVICES]:
        before, after = change.before, change.after
        table.add_row(
            "", change.service, str(change.latest.endpoints), percent(before.share if before else None),
            percent(after.share if after else None), f"${after.usd_per_tb:.2f}" if after else "–",
            same_zone(change.latest),
        )  # fmt: skip
    console.print(table)
    if len(rows) > _MAX_SERVICES:
        more = f"  and {len(rows) - _MAX_SERVICES} more; --json lists all"
        console.print(Text(more, style=terminal.QUIET))
