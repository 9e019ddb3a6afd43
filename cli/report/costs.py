"""The cost of namespaces in a report: what a recording holds of it, its table on the terminal, the page's section.

All of them show the same figures, whose sum is the bill (:mod:`cli.nodes.cost_allocation`).
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from cli import html_page, terminal
from cli.nodes import cost_allocation
from cli.nodes.cost_allocation import allocate, rounded
from shared.base.plurals import plural
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from rich.console import Console

    from cli.nodes.rows import NodeRows
    from shared.snapshot import Snapshot

PLACES = 4
"""Decimal places of all figures: $0.0001 per hour is 7 cents a month."""
_FIGURES = 2
_NAMES = {cost_allocation.DAEMONS: "DaemonSets and static pods", cost_allocation.IDLE: "idle"}
_WITHOUT_VALUE = "none"


class RecordedCost(WireStruct, kw_only=True):
    """One share of the nodes' price: ``share`` is pods, daemons or idle, ``cost`` USD per hour with four places.

    Only pods have a ``namespace``, and a ``value`` of the label; "" if they lack it, or without a label.
    """

    share: str
    namespace: str = ""
    value: str = ""
    cost: float


class RecordedCosts(WireStruct, kw_only=True):
    """The price of all nodes at the end of a recording, by whose pods request it. ``total`` is exactly the rows' sum.

    ``label`` is the key of the pods' label by which namespaces are split, "" for none. ``unpriced`` is the number of
    nodes whose price isn't known, which are left out.
    """

    label: str = ""
    rows: list[RecordedCost] = []
    total: float = 0.0
    unpriced: int = 0


def recorded_costs(nodes: NodeRows, snapshot: Snapshot, *, label: str) -> RecordedCosts:
    """What each namespace costs now."""
    shares = allocate(nodes.rows, snapshot.pods, label=label)
    costs = rounded(shares, places=PLACES)
    return RecordedCosts(
        label=label,
        rows=[
            RecordedCost(share=s.share, namespace=s.namespace, value=s.value, cost=cost)
            for s, cost in zip(shares, costs, strict=True)
        ],
        total=round(sum(costs), PLACES),
        unpriced=sum(row.price is None for row in nodes.rows),
    )


def show(console: Console, costs: RecordedCosts) -> None:
    """Print the table."""
    columns = _columns(costs)
    table = terminal.table(*columns, right=columns[-_FIGURES:])
    for row in _texts(costs):
        table.add_row("", *row)
    console.print(table)
    if unpriced := _unpriced(costs):
        console.print(f"  {unpriced}")


def section(costs: RecordedCosts | None) -> str:
    """The page's section; nothing if the recording has none, as those of the demo."""
    if costs is None:
        return ""
    summary = (
        "USD per hour at the end of this report: the price of each node, split by what pods request, in the ratio of "
        f"OpenCost's base prices for CPU, memory and GPUs. {_unpriced(costs)}"
    )
    table = html_page.table(_columns(costs), _texts(costs), label="Cost by namespace", figures=_FIGURES)
    return (
        '<section aria-labelledby="costs"><h2 id="costs">Cost by namespace</h2>'
        f'<p class="quiet">{html.escape(summary.strip())}</p>{table}</section>'
    )


def _unpriced(costs: RecordedCosts) -> str:
    return f"Without {plural(costs.unpriced, 'node')} whose price is unknown." if costs.unpriced else ""


def _columns(costs: RecordedCosts) -> tuple[str, ...]:
    return ("Namespace", *((costs.label,) if costs.label else ()), "$/h", "Share")


def _texts(costs: RecordedCosts) -> list[tuple[str, ...]]:
    """The rows as texts, the last one with the total."""
    rows = [
        (_NAMES.get(row.share, row.namespace), _value(row) if row.share == cost_allocation.PODS else "", row.cost)
        for row in costs.rows
    ]
    return [
        (name, *((value,) if costs.label else ()), terminal.usd(cost, places=PLACES), _percent(cost, costs.total))
        for name, value, cost in (*rows, ("total", "", costs.total))
    ]


def _value(row: RecordedCost) -> str:
    return row.value or _WITHOUT_VALUE


def _percent(cost: float, total: float) -> str:
    return f"{cost / total:.1%}" if total else "0.0%"
