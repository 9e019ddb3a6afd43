"""Instance types on a terminal: a few in full, more as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.catalog.entries import CatalogEntry

_MAX_DETAILED = 3


def show(entries: Sequence[CatalogEntry]) -> None:
    """Print the instance types."""
    if len(entries) <= _MAX_DETAILED:
        _details(entries)
    else:
        _table(entries)


def _cheapest(entry: CatalogEntry, capacity_type: str) -> str:
    prices = [o.price for o in entry.offerings if o.capacity_type == capacity_type]
    return f"{min(prices):.4f}" if prices else "-"


def _extended_resources(amounts: dict[str, str]) -> str:
    usual = {"cpu", "memory", "pods", "ephemeral-storage"}
    return ", ".join(f"{name.rpartition('/')[2]} {amounts[name]}" for name in sorted(amounts) if name not in usual)


def _table(entries: Sequence[CatalogEntry]) -> None:
    amounts = ("cpu", "memory", "pods", "storage")
    prices = ("on-demand", "spot from")
    table = terminal.table("type", *amounts, "other", *prices, right=(*amounts, *prices), optional=("storage", "other"))
    for entry in entries:
        allocatable = entry.allocatable
        table.add_row(
            "",
            entry.name,
            *(allocatable[name] for name in ("cpu", "memory", "pods", "ephemeral-storage")),
            _extended_resources(allocatable),
            _cheapest(entry, "on-demand"),
            _cheapest(entry, "spot"),
        )
    console = terminal.console()
    console.print(terminal.title("Allocatable resources, and USD per hour"))
    console.print(table)


def _details(entries: Sequence[CatalogEntry]) -> None:
    console = terminal.console()
    for entry in entries:
        console.print()
        console.print(terminal.title(entry.name))
        columns = ("capacity", "overhead", "allocatable")
        amounts = terminal.table("resource", *columns, right=columns)
        for name in entry.capacity:
            cells = (amount.get(name, "-") for amount in (entry.capacity, entry.overhead, entry.allocatable))
            amounts.add_row("", name, *cells)
        console.print(amounts)
        console.print()
        offered = terminal.table("zone", "capacity", "$/h", "available", right=("$/h",))
        for o in entry.offerings:
            kind = terminal.capacity(o.capacity_type)
            offered.add_row("", o.zone, kind, f"{o.price:.4f}", "yes" if o.available else "no")
        console.print(offered)
        console.print()
        for name, value in entry.labels.items():
            console.print(f"  {name}={value}", soft_wrap=True)
