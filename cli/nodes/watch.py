"""Live view of the nodes: pods, NodeClaims and nodes are read at each update, prices every few minutes."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.text import Text

from cli import terminal
from cli.cluster.observed_cluster import chunks_by_node
from cli.cluster.pricing import offering_prices
from cli.nodes import rows
from cli.nodes import table as node_table
from shared import runtime
from shared.cluster.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console, RenderableType

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.nodes.rows import NodeRows, Row
    from shared.snapshot import Snapshot

PRICE_MAX_AGE = 300.0
"""Seconds until prices are read again."""


def read_rows(observed: ObservedCluster) -> NodeRows:
    """The rows of the cluster."""
    return _rows(observed, _price_lookup(observed))


def _price_lookup(observed: ObservedCluster) -> Callable[[str, str, str], float | None]:
    prices = offering_prices(observed.offerings.resolve_pools(observed.snapshot))
    return lambda instance_type, zone, capacity_type: prices.get((instance_type, zone, capacity_type))


def _rows(observed: ObservedCluster, price: Callable[[str, str, str], float | None]) -> NodeRows:
    snapshot, node_groups = observed.snapshot, observed.node_groups
    coming = node_groups.coming(snapshot) if node_groups is not None else ()
    groups = node_groups.group_by_node if node_groups is not None else {}
    return rows.build(
        snapshot.nodes,
        (*snapshot.node_claims, *coming),
        snapshot.pods,
        price=price,
        now=observed.now,
        chunks=chunks_by_node(snapshot),
        groups=groups | {claim.name: claim.name.partition("/")[0] for claim in coming},
    )


def watch(
    console: Console,
    observed: ObservedCluster,
    refresh: Callable[[], Snapshot],
    select: Callable[[NodeRows], Sequence[Row]],
    *,
    interval: float,
) -> None:
    """Update the table until Ctrl-C. While the cluster can't be reached, it shows the last state and the error."""
    price, priced_at = _price_lookup(observed), time.monotonic()
    current = observed
    error_message = ""
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(_frame(console, current, price, select, error_message), refresh=True)
            runtime.current().sleep(interval)
            try:
                current = replace(current, snapshot=refresh(), now=runtime.current().now())
                error_message = ""
            except UnavailableError as error:
                error_message = error.message or str(error)
            if time.monotonic() - priced_at > PRICE_MAX_AGE:
                price, priced_at = _price_lookup(current), time.monotonic()


def _frame(
    console: Console,
    observed: ObservedCluster,
    price: Callable[[str, str, str], float | None],
    select: Callable[[NodeRows], Sequence[Row]],
    error_message: str,
) -> RenderableType:
    node_rows = _rows(observed, price)
    table = node_table.render(
        node_rows,
        select(node_rows),
        name=observed.name,
        width=console.width,
        height=console.height,
        pauses=observed.pauses,
    )
    if not error_message:
        return table
    return Group(table, Text(f"  not updated: {error_message}", style=terminal.BAD))
