"""Looking at a cluster again and again: pods, claims and nodes each time, prices once in a while."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.text import Text

from cli import terminal
from cli.cluster.observed_cluster import prices_of
from cli.nodes import rows
from cli.nodes import table as node_table
from shared import runtime
from shared.cluster.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console, RenderableType

    from cli.cluster.observed_cluster import Facts
    from cli.nodes.rows import Row, Table
    from shared.snapshot import Snapshot

PRICES_KEPT = 300.0
"""Seconds between looks at prices."""


def table(facts: Facts) -> Table:
    """The rows of what was read."""
    return _table(facts, _prices(facts))


def _prices(facts: Facts) -> Callable[[str, str, str], float | None]:
    known = prices_of(facts.stock.offers(facts.snapshot))
    return lambda kind, zone, capacity: known.get((kind, zone, capacity))


def _table(facts: Facts, price: Callable[[str, str, str], float | None]) -> Table:
    snapshot = facts.snapshot
    return rows.take(snapshot.nodes, snapshot.node_claims, snapshot.pods, price=price, now=facts.now)


def watch(
    console: Console,
    facts: Facts,
    again: Callable[[], Snapshot],
    shown: Callable[[Table], Sequence[Row]],
    *,
    interval: float,
) -> None:
    """Draw until Ctrl-C; while the cluster can't be reached, the last look stays, and says so."""
    price, priced_at = _prices(facts), time.monotonic()
    current = facts
    trouble = ""
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(_frame(console, current, price, shown, trouble), refresh=True)
            runtime.current().sleep(interval)
            try:
                current = replace(current, snapshot=again(), now=runtime.current().now())
                trouble = ""
            except UnavailableError as error:
                trouble = error.message or str(error)
            if time.monotonic() - priced_at > PRICES_KEPT:
                price, priced_at = _prices(current), time.monotonic()


def _frame(
    console: Console,
    facts: Facts,
    price: Callable[[str, str, str], float | None],
    shown: Callable[[Table], Sequence[Row]],
    trouble: str,
) -> RenderableType:
    taken = _table(facts, price)
    drawn = node_table.render(taken, shown(taken), name=facts.name, width=console.width, height=console.height)
    if not trouble:
        return drawn
    return Group(drawn, Text(f"  not reached since then: {trouble}", style=terminal.BAD))
