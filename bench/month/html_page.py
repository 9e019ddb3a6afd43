"""The played months as one HTML page in the look of ``tenon report``; it makes no network requests."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cli.report import charts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_HEAD = ("Load", "Rule", "USD", "To greedy", "Moved pods", "Waits: median, 99 %", "Nodes")


class Outcome(Protocol):
    """What the page shows of a month under one rule."""

    @property
    def dollars(self) -> float:
        """USD of the month."""
        ...

    @property
    def moved(self) -> int:
        """Voluntarily moved pods."""
        ...

    @property
    def wait_p50(self) -> float:
        """Seconds."""
        ...

    @property
    def wait_p99(self) -> float:
        """Seconds."""
        ...

    @property
    def nodes(self) -> float:
        """The average number."""
        ...

    @property
    def cost_by_hour(self) -> Sequence[float]:
        """USD per hour."""
        ...

    @property
    def nodes_by_hour(self) -> Sequence[float]:
        """Average numbers."""
        ...


@dataclass(frozen=True)
class Month:
    """A load by rule (tenon and greedy), and its lower bound in USD per hour of each hour."""

    title: str
    outcomes: Mapping[str, Outcome]
    bound: Sequence[float]


def page(months: Sequence[Month]) -> str:
    """The page's HTML.

    Raises:
        CommandError: the charts' library isn't installed.
    """
    parts = {
        "styles": charts.read(charts.STYLES) + (files("cli.report") / "page" / "page.css").read_text(encoding="utf-8"),
        "scripts": f"/*\n{charts.read(charts.LICENSE)}*/\n{charts.read(charts.SCRIPT)}\n{_asset('page.js')}",
        "totals": _totals(months),
        "months": "".join(_section(i, month) for i, month in enumerate(months)),
        "data": _data(months),
    }
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _data(months: Sequence[Month]) -> str:
    value = [
        {
            "bound": list(m.bound),
            **{rule: {"cost": list(o.cost_by_hour), "nodes": list(o.nodes_by_hour)} for rule, o in m.outcomes.items()},
        }
        for m in months
    ]
    return json.dumps(value).replace("<", "\\u003c")


def _section(number: int, month: Month) -> str:
    title = html.escape(month.title)
    return (
        f'<section aria-labelledby="title-{number}"><h2 id="title-{number}">{title}</h2>'
        f'<p class="quiet">USD per hour</p>'
        f'<div class="chart" id="cost-{number}" role="img" aria-label="{title}: cost over time"></div>'
        f'<p class="quiet">Nodes</p>'
        f'<div class="chart" id="nodes-{number}" role="img" aria-label="{title}: nodes over time"></div></section>'
    )


def _totals(months: Sequence[Month]) -> str:
    head = "".join(f"<th scope='col'{' class=figure' if i > 1 else ''}>{name}</th>" for i, name in enumerate(_HEAD))
    rows = []
    for month in months:
        greedy = month.outcomes["greedy"].dollars
        bound = sum(month.bound)
        rows += [
            _row(
                month.title,
                rule,
                o.dollars,
                greedy,
                (f"{o.moved:,}", f"{o.wait_p50:.0f} s, {o.wait_p99:.0f} s", f"{o.nodes:.0f}"),
            )
            for rule, o in month.outcomes.items()
        ]
        rows.append(_row(month.title, "lower bound", bound, greedy, ("", "", "")))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(title: str, rule: str, usd: float, greedy: float, figures: Sequence[str]) -> str:
    share = f"{usd / greedy:.1%}" if greedy else ""
    cells = "".join(f'<td class="figure">{html.escape(text)}</td>' for text in (f"{usd:,.2f}", share, *figures))
    return f"<tr><td>{html.escape(title)}</td><td>{html.escape(rule)}</td>{cells}</tr>"
