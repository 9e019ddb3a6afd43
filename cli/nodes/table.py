"""The rows on a terminal: a line of sums, then a line a node, as wide and as long as there is room for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from cli import terminal
from cli.nodes import rows as states
from shared.api.quantity import CPU, MEMORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from cli.nodes.rows import Row, Table

MONTH_HOURS = 730
_STYLES = {
    states.READY: terminal.GOOD,
    states.LEAVING: terminal.BAD,
    states.NOT_READY: terminal.BAD,
    states.ASKED: terminal.WAITS,
    states.STARTING: terminal.WAITS,
    states.JOINING: terminal.WAITS,
    "empty": terminal.QUIET,
}
_WIDE, _WIDER, _WIDEST = 90, 112, 140
_BAR = 10


def render(taken: Table, shown: Sequence[Row], *, name: str, width: int, height: int | None = None) -> RenderableType:
    """All of it: ``shown`` are the rows in their order; those that ``height`` lines have no room for are counted."""
    head = _head(taken, name)
    room = len(shown) if height is None else max(1, height - 8)
    parts: list[RenderableType] = [head, _sums(taken, shown, width), Text()]
    if shown:
        parts.append(table(taken, shown[:room], width=width))
    if len(shown) > room:
        parts.append(Text(f"  and {terminal.plural(len(shown) - room, 'node')} more", style=terminal.QUIET))
    if not shown:
        parts.append(Text("  no nodes", style=terminal.QUIET))
    return Group(*parts)


def _head(taken: Table, name: str) -> Text:
    cost = taken.cost
    unpriced = sum(r.price is None for r in taken.rows)
    return terminal.title(
        name,
        terminal.plural(len(taken.rows), "node"),
        f"{terminal.usd(cost)}/h" + (f" and {unpriced} of unknown price" if unpriced else ""),
        f"${cost * MONTH_HOURS:,.0f}/month",
        f"{taken.now:%H:%M:%S} UTC",
    )


def _sums(taken: Table, shown: Sequence[Row], width: int) -> RenderableType:
    kinds = Counter(r.capacity_type for r in taken.rows if r.capacity_type)
    grid = terminal.table("", "", "", "", "", "", indent=0)
    grid.show_header = False
    pods = Text.assemble(
        f"{terminal.plural(taken.running, 'pod')} running",
        (f", {taken.pending:,} pending", f"bold {terminal.WAITS}") if taken.pending else "",
    )
    wide = _BAR * 2 if width >= _WIDER else _BAR
    machines = Text(", ").join(Text.assemble(f"{n:,} ", terminal.capacity(kind)) for kind, n in sorted(kinds.items()))
    grid.add_row(
        "cpu",
        terminal.bar(taken.fill(CPU), width=wide),
        "memory",
        terminal.bar(taken.fill(MEMORY), width=wide),
        pods,
        machines,
    )
    if len(shown) == len(taken.rows):
        return grid
    return Group(
        grid, Text(f"{len(shown):,} of {terminal.plural(len(taken.rows), 'node')} shown", style=terminal.QUIET)
    )


def table(taken: Table, shown: Sequence[Row], *, width: int) -> RenderableType:
    """A line a node."""
    columns = ["node", "type", "zone", "capacity", "$/h", "cpu", "memory", "pods", "age", "state"]
    if width >= _WIDEST:
        columns.insert(1, "pool")
    made = terminal.table(*columns, right=("$/h", "pods", "age"), indent=0)
    for column in made.columns:
        column.no_wrap = True
        column.overflow = "ellipsis"
    for row in shown:
        cells: list[RenderableType] = [
            row.name.partition(".")[0],
            row.instance_type,
            row.zone.rpartition("-")[2],
            terminal.capacity(row.capacity_type),
            "?" if row.price is None else terminal.usd(row.price).removeprefix("$") if row.price else "",
            _fill(row, CPU, width),
            _fill(row, MEMORY, width),
            str(row.pods),
            terminal.age(taken.now - row.since) if row.since is not None else "",
            Text(row.state, style=_STYLES.get(row.state, terminal.WAITS)),
        ]
        if width >= _WIDEST:
            cells.insert(1, row.pool)
        made.add_row(*cells)
    return made


def _fill(row: Row, resource: str, width: int) -> RenderableType:
    share = row.fill(resource)
    if share is None:
        return ""
    return terminal.bar(share) if width >= _WIDE else Text(f"{share:.0%}", style=terminal.BAD if share > 1 else "")
