"""The comparison in the terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli import terminal
from cli.shadow.comparison import compare
from shared.base.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from rich.console import Console

    from cli.shadow.comparison import ShadowTotal
    from cli.shadow.days import ShadowDays

_MAX_OFFERINGS, _MAX_PODS = 12, 10
NAMES = {"real": "real", "shadow": "Tenon", "unscaled": "both"}
"""The fleets as users read them."""


def show(console: Console, shadow: ShadowDays) -> None:
    """Both fleets in total and by day, what they ran, and pods that Tenon had no place for."""
    total = compare(shadow.days)
    period = shadow.days[0].date if len(shadow.days) == 1 else f"{shadow.days[0].date} to {shadow.days[-1].date}"
    console.print(terminal.title(f"shadow mode of {shadow.cluster}", period))
    for sentence in sentences(total):
        console.print(f"  {sentence}")
    for note in (*shadow.record.notes, *warnings(total)):
        console.print(f"  {note}", style=terminal.WARNING)
    _show_days(console, shadow)
    _show_offerings(console, total)
    _show_pods(console, shadow)


def sentences(total: ShadowTotal) -> Iterator[str]:
    """The result in words."""
    share = f" ({total.saved_share:+.1%})" if total.saved_share is not None else ""
    saved = f"saves {dollars(total.saved)}" if total.saved >= 0 else f"costs {dollars(-total.saved)} more"
    yield f"real {dollars(total.real.dollars)}, Tenon {dollars(total.shadow.dollars)}: Tenon {saved}{share}"
    yield (
        f"Tenon would have launched {plural(total.launched, 'node')}, removed "
        f"{sum(total.removed.values()):,} and moved {plural(total.moved, 'pod')}; the other autoscaler started "
        f"{total.real_started} and ended {total.real_ended}"
    )
    mean = total.waited_seconds / total.waited_pods if total.waited_pods else 0.0
    yield (
        f"{plural(total.waited_pods, 'pod')} waited for a real node, {mean:.0f} s on average; "
        f"{total.for_new_nodes} would have waited for a new one of Tenon's"
    )
    if total.unscaled.dollars:
        yield f"nodes that nobody scales cost {dollars(total.unscaled.dollars)} more, for both"


def warnings(total: ShadowTotal) -> Iterator[str]:
    """What the figures leave out."""
    if total.gap_seconds:
        yield f"{_span(total.gap_seconds)} were only seen from their ends, because runs were missed"
    if total.skipped_seconds:
        yield f"{_span(total.skipped_seconds)} without a run aren't counted for either fleet"
    unpriced = total.real.unpriced_hours + total.shadow.unpriced_hours
    if unpriced:
        yield f"{unpriced:,.1f} instance-hours have no known price and aren't in the dollars"
    if total.unplaced_pods:
        yield (
            f"Tenon had no place for {plural(total.unplaced_pods, 'pod')}, for {_span(total.unplaced_seconds)} together"
        )


def _show_days(console: Console, shadow: ShadowDays) -> None:
    figures = (
        "counted",
        "real $",
        "Tenon $",
        "saved $",
        "real h",
        "Tenon h",
        "launched",
        "removed",
        "moved",
        "unplaced",
    )
    table = terminal.table(
        "day", *figures, right=figures, optional=("real h", "Tenon h", "removed", "launched", "moved")
    )
    for day in shadow.days:
        own = compare([day])
        style = terminal.BAD if own.saved < 0 else terminal.GOOD if own.saved > 0 else None
        table.add_row(
            "",
            day.date,
            _span(own.seconds),
            f"{own.real.dollars:,}",
            f"{own.shadow.dollars:,}",
            f"{own.saved:,}",
            f"{own.real.instance_hours:,.1f}",
            f"{own.shadow.instance_hours:,.1f}",
            str(own.launched),
            str(sum(own.removed.values())),
            str(own.moved),
            str(own.unplaced_pods),
            style=style,
        )
    console.print()
    console.print(table)


def _show_offerings(console: Console, total: ShadowTotal) -> None:
    table = terminal.table("fleet", "instance type", "capacity", "zone", "hours", "$", right=("hours", "$"))
    for cost in total.offerings[:_MAX_OFFERINGS]:
        capacity_type = terminal.capacity(cost.capacity_type)
        hours, usd = f"{cost.instance_hours:,.1f}", f"{cost.dollars:,}"
        table.add_row("", NAMES[cost.fleet], cost.instance_type, capacity_type, cost.zone, hours, usd)
    console.print()
    console.print(table)
    hidden = len(total.offerings) - _MAX_OFFERINGS
    if hidden > 0:
        console.print(f"  {hidden} more are in --json and --html", style=terminal.QUIET)


def _show_pods(console: Console, shadow: ShadowDays) -> None:
    pods = [pod for day in shadow.days for pod in day.unplaced]
    if not pods:
        return
    table = terminal.table("pod without a place", "for", "reason", text=("reason",))
    for pod in sorted(pods, key=lambda p: (-p.seconds, p.pod))[:_MAX_PODS]:
        table.add_row("", pod.pod, _span(pod.seconds), pod.reason)
    console.print()
    console.print(table)


def dollars(amount: Decimal) -> str:
    """USD to the cent."""
    return f"${amount:,}"


def _span(seconds: int) -> str:
    return terminal.age(timedelta(seconds=seconds))
