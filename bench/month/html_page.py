"""The months as one HTML page in the look of ``tenon report``; it makes no network requests."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from bench.month.comparison import KARPENTER
from cli import html_page
from cli.report import charts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.month.comparison import Month

_HEAD = ("Load", "Rules", "USD", "To Karpenter's rules", "Moved pods", "Waits: median, 99 %", "Nodes")


def page(months: Mapping[str, Month]) -> str:
    """The page's HTML for months by title.

    Raises:
        CommandError: the charts' library isn't installed.
    """
    parts = {
        "styles": charts.read(charts.STYLES) + (files("cli.report") / "page" / "page.css").read_text(encoding="utf-8"),
        "scripts": f"/*\n{charts.read(charts.LICENSE)}*/\n{charts.read(charts.SCRIPT)}\n{_asset('page.js')}",
        "totals": _totals(months),
        "months": "".join(_section(i, title) for i, title in enumerate(months)),
        "data": _data(months.values()),
    }
    return html_page.filled(_asset("page.html"), parts)


def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _data(months: Iterable[Month]) -> str:
    value = [
        {
            "bound": list(m.bound),
            **{r: {"cost": list(o.cost_by_hour), "nodes": list(o.nodes_by_hour)} for r, o in m.outcomes.items()},
        }
        for m in months
    ]
    return json.dumps(value).replace("<", "\\u003c")


def _section(number: int, title: str) -> str:
    title = html.escape(title)
    return (
        f'<section aria-labelledby="title-{number}"><h2 id="title-{number}">{title}</h2>'
        f'<p class="quiet">USD per hour</p>'
        f'<div class="chart" id="cost-{number}" role="img" aria-label="{title}: cost over time"></div>'
        f'<p class="quiet">Nodes</p>'
        f'<div class="chart" id="nodes-{number}" role="img" aria-label="{title}: nodes over time"></div></section>'
    )


def _totals(months: Mapping[str, Month]) -> str:
    head = "".join(f"<th scope='col'{' class=figure' if i > 1 else ''}>{name}</th>" for i, name in enumerate(_HEAD))
    rows = []
    for title, month in months.items():
        reference = month.outcomes[KARPENTER].dollars
        for rules, o in month.outcomes.items():
            figures = f"{o.moved:,}", f"{o.wait_p50:.0f} s, {o.wait_p99:.0f} s", f"{o.nodes:.0f}"
            rows.append(_row(title, rules, o.dollars, reference, figures))
        rows.append(_row(title, "lower bound", sum(month.bound), reference, ("", "", "")))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(title: str, rules: str, usd: float, reference: float, figures: Sequence[str]) -> str:
    share = f"{usd / reference:.1%}" if reference else ""
    cells = "".join(f'<td class="figure">{html.escape(text)}</td>' for text in (f"{usd:,.2f}", share, *figures))
    return f"<tr><td>{html.escape(title)}</td><td>{html.escape(rules)}</td>{cells}</tr>"
