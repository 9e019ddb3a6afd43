"""The node table on a terminal: totals, then a line for each node, fitted to the width and height."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from cli import terminal
from cli.nodes import rows as states
from shared.api.quantity import CPU, MEMORY
from shared.base.plurals import plural

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
    states.REBOOTING: terminal.WARNING,
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
    pauses: Sequence[str] = (),
    label_columns: Sequence[str] = (),
) -> RenderableType:
    """Totals and the selected rows in their order, with columns for these labels. ``pauses`` are below the title."""
    shown = (
        table(rows, selected, width=width, label_columns=label_columns)
        if selected
        else Text("  no nodes", style=terminal.QUIET)
    )
    return Group(head(rows, selected, name=name, width=width, pauses=pauses), shown)


def head(rows: NodeRows, selected: Sequence[Row], *, name: str, width: int, pauses: Sequence[str] = ()) -> Group:
    """The title, the pauses, and the totals of all rows."""
    paused = (Text(pause, style=terminal.WARNING) for pause in pauses)
    return Group(_title(rows, name), *paused, _totals(rows, selected, width), Text())


def _title(rows: NodeRows, name: str) -> Text:
    cost = rows.cost
    unpriced = sum(r.price is None for r in rows.rows)
    return terminal.title(
        name,
        plural(len(rows.rows), "node"),
        f"{terminal.usd(cost)}/h" + (f" plus {unpriced:,} of unknown price" if unpriced else ""),
        f"${cost * MONTH_HOURS:,.0f}/month",
        rows.prices.caveat,
        f"{rows.now:%H:%M:%S} UTC",
    )


def _totals(rows: NodeRows, selected: Sequence[Row], width: int) -> RenderableType:
    count_by_capacity_type = Counter(r.capacity_type for r in rows.rows if r.capacity_type)
    grid = terminal.table("", "", "", "", "", "", indent=0)
    grid.show_header = False
    pods = Text.assemble(
        f"{plural(rows.running, 'pod')} running",
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
    return Group(grid, Text(f"{len(selected):,} of {plural(len(rows.rows), 'node')} shown", style=terminal.QUIET))


def table(
    rows: NodeRows,
    selected: Sequence[Row],
    *,
    width: int,
    label_columns: Sequence[str] = (),
    fitted_to: Sequence[Row] = (),
) -> terminal.FittedTable:
    """A line for each row. Columns of names are wide enough for the rows ``fitted_to``, so they don't move."""
    columns = ["node", "type", "zone", "capacity", "$/h", "cpu", "memory", "pods", "age", "state"]
    if width >= _WIDEST:
        columns.insert(1, "pool")
    has_chunks = any(row.chunks for row in rows.rows)
    if has_chunks:
        columns.insert(columns.index("age"), "chunks")
    numbers = ("$/h", "pods", "chunks", "age")
    optional = ("pool", "zone", "age", "memory", "cpu", "chunks")
    grid = terminal.table(*columns, right=numbers, optional=optional, indent=0)
    for heading in label_headings(label_columns):
        grid.add_column(heading, no_wrap=True)
    _fit(grid, fitted_to, label_columns)
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
        grid.add_row(*cells, *(row.labels.get(key, "") for key in label_columns))
    return grid


def label_headings(keys: Sequence[str]) -> list[str]:
    """A column's heading for each label, as kubectl has it: the key's last part in capitals.

    Keys with the same last part are headings in full.
    """
    short = [key.rpartition("/")[2].upper() for key in keys]
    return [name if short.count(name) == 1 else key for name, key in zip(short, keys, strict=True)]


def _fit(grid: terminal.FittedTable, fitted_to: Sequence[Row], label_columns: Sequence[str]) -> None:
    """Give columns the width of their longest cell in all these rows."""
    if not fitted_to:
        return
    lengths = {
        "node": max(len(r.name.partition(".")[0]) for r in fitted_to),
        "pool": max(len(r.pool or r.group) for r in fitted_to),
        "type": max(len(r.instance_type) for r in fitted_to),
        "capacity": max(len(r.capacity_type) for r in fitted_to),
        "state": max(len(r.state) for r in fitted_to),
    }
    for heading, key in zip(label_headings(label_columns), label_columns, strict=True):
        lengths[heading] = max(len(r.labels.get(key, "")) for r in fitted_to)
    for column in grid.columns:
        if column.header in lengths:
            column.min_width = max(lengths[str(column.header)], len(str(column.header)))


def _share(row: Row, resource: str, width: int) -> RenderableType:
    share = row.requested_share(resource)
    if share is None:
        return ""
    return terminal.bar(share) if width >= _WIDE else Text(f"{share:.0%}", style=terminal.BAD if share > 1 else "")
