"""The node table on a terminal: totals, then a line for each node, fitted to the width and height."""

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

    from cli.nodes.rows import NodeRows, Row

MONTH_HOURS = 730
_STYLES = {
    states.READY: terminal.GOOD,
    states.DELETING: terminal.BAD,
    states.NOT_READY: terminal.BAD,
    states.PENDING: terminal.WARNING,
    states.LAUNCHED: terminal.WARNING,
    states.INITIALIZING: terminal.WARNING,
    states.EMPTY: terminal.QUIET,
    states.UNNEEDED: terminal.QUIET,
    states.REMOVING: terminal.BAD,
}
_WIDE, _WIDER, _WIDEST = 90, 112, 140
"""Columns from which shares are bars, totals have longer bars, and the NodePool is shown."""
_BAR = 10


def render(
    rows: NodeRows,
    selected: Sequence[Row],
    *,
    name: str,
    width: int,
    height: int | None = None,
    pauses: Sequence[str] = (),
) -> RenderableType:
    """Totals and the selected rows in their order; rows that don't fit into ``height`` lines are counted.

    ``pauses`` are shown below the title.
    """
    head = _head(rows, name)
    room = len(selected) if height is None else max(1, height - 8 - len(pauses))
    paused = (Text(pause, style=terminal.WARNING) for pause in pauses)
    parts: list[RenderableType] = [head, *paused, _totals(rows, selected, width), Text()]
    if selected:
        parts.append(table(rows, selected[:room], width=width))
    if len(selected) > room:
        parts.append(Text(f"  and {terminal.plural(len(selected) - room, 'node')} more", style=terminal.QUIET))
    if not selected:
        parts.append(Text("  no nodes", style=terminal.QUIET))
    return Group(*parts)


def _head(rows: NodeRows, name: str) -> Text:
    cost = rows.cost
    unpriced = sum(r.price is None for r in rows.rows)
    return terminal.title(
        name,
        terminal.plural(len(rows.rows), "node"),
        f"{terminal.usd(cost)}/h" + (f" plus {unpriced} of unknown price" if unpriced else ""),
        f"${cost * MONTH_HOURS:,.0f}/month",
        f"{rows.now:%H:%M:%S} UTC",
    )


def _totals(rows: NodeRows, selected: Sequence[Row], width: int) -> RenderableType:
    count_by_capacity_type = Counter(r.capacity_type for r in rows.rows if r.capacity_type)
    grid = terminal.table("", "", "", "", "", "", indent=0)
    grid.show_header = False
    pods = Text.assemble(
        f"{terminal.plural(rows.running, 'pod')} running",
        (f", {rows.pending:,} pending", f"bold {terminal.WARNING}") if rows.pending else "",
    )
    wide = _BAR * 2 if width >= _WIDER else _BAR
    capacity_types = Text(", ").join(
        Text.assemble(f"{n:,} ", terminal.capacity(kind)) for kind, n in sorted(count_by_capacity_type.items())
    )
    grid.add_row(
        "cpu",
        terminal.bar(rows.requested_share(CPU), width=wide),
        "memory",
        terminal.bar(rows.requested_share(MEMORY), width=wide),
        pods,
        capacity_types,
    )
    if len(selected) == len(rows.rows):
        return grid
    return Group(
        grid, Text(f"{len(selected):,} of {terminal.plural(len(rows.rows), 'node')} shown", style=terminal.QUIET)
    )


def table(rows: NodeRows, selected: Sequence[Row], *, width: int) -> RenderableType:
    """A line for each row."""
    columns = ["node", "type", "zone", "capacity", "$/h", "cpu", "memory", "pods", "age", "state"]
    if width >= _WIDEST:
        columns.insert(1, "pool")
    has_chunks = any(row.chunks for row in rows.rows)
    if has_chunks:
        columns.insert(columns.index("age"), "chunks")
    numbers = ("$/h", "pods", "chunks", "age")
    optional = ("pool", "zone", "age", "memory", "cpu", "chunks")
    grid = terminal.table(*columns, right=numbers, optional=optional, indent=0)
    for row in selected:
        cells: list[RenderableType] = [
            row.name.partition(".")[0],
            row.instance_type,
            row.zone.rpartition("-")[2],
            terminal.capacity(row.capacity_type),
            "?" if row.price is None else terminal.usd(row.price).removeprefix("$") if row.price else "",
            _share(row, CPU, width),
            _share(row, MEMORY, width),
            str(row.pods),
            *([str(row.chunks or "")] if has_chunks else []),
            terminal.age(rows.now - row.created) if row.created is not None else "",
            Text(row.state, style=_STYLES.get(row.state, terminal.WARNING)),
        ]
        if width >= _WIDEST:
            cells.insert(1, row.pool or row.group)
        grid.add_row(*cells)
    return grid


def _share(row: Row, resource: str, width: int) -> RenderableType:
    share = row.requested_share(resource)
    if share is None:
        return ""
    return terminal.bar(share) if width >= _WIDE else Text(f"{share:.0%}", style=terminal.BAD if share > 1 else "")
