"""A recording as one HTML page that contains all its styles, scripts and data and makes no network requests.

The charts are uPlot's (charts.py), whose license is in the page too.
"""

from __future__ import annotations

import html
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cli import html_page, terminal
from cli.progress import progress
from cli.report import charts, costs, moves, traffic
from cli.report.recording import total_cost
from shared.base.decision_log import INTERRUPTED
from shared.base.plurals import plural

if TYPE_CHECKING:
    from cli.report.recording import RecordedDecision, RecordedLaunches, Recording

_PAGE = Path(__file__).parent / "page"
_LONG_RUN_SECONDS = 3 * 3600
_MAX_DECISIONS = 500
_MAX_LAUNCHES = 20
_BAR_PERCENT = 70
"""The width of the longest bar, in percent; its label is next to it."""
_CENT = 0.01
_DECISION_COLUMNS = ("Time", "Node", "Outcome", "Reason", "Message", "$/h")


def save(recording: Recording, output: Path) -> Path:
    """Write the HTML page.

    Raises:
        UsageError: the file can't be written.
        CommandError: the charts' library isn't installed.
    """
    with progress("Writing the page"):
        html_page.save(page(recording), output)
    return output


def page(recording: Recording) -> str:
    """The page's HTML.

    Raises:
        CommandError: the charts' library isn't installed.
    """
    parts = {
        "title": html.escape(recording.title),
        "span": html.escape(_span(recording)),
        "tiles": _tiles(recording),
        "notes": html_page.notes(recording.notes),
        "cost_label": html.escape(_cost_label(recording)),
        "interruptions": _interruption_note(recording),
        "pods_label": html.escape(_pods_label(recording)),
        "launches": _launches(recording),
        "moves": moves.section(recording),
        "costs": costs.section(recording.costs),
        "traffic": traffic.section(recording.traffic),
        "decisions": _decisions(recording),
        "data": _data(recording),
        "styles": charts.read(charts.STYLES) + html_page.styles(),
        "scripts": f"/*\n{charts.read(charts.LICENSE)}*/\n{charts.read(charts.SCRIPT)}\n{_asset('page.js')}",
    }
    return html_page.filled(_asset("page.html"), parts)


def _asset(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def _data(recording: Recording) -> str:
    """The recording as JSON, escaped for a script element."""
    value = {
        **msgspec.to_builtins(recording),
        "start": recording.start.timestamp(),
        "interruptions": [[d.at, d.node] for d in _interruptions(recording)],
    }
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _interruptions(recording: Recording) -> list[RecordedDecision]:
    return [d for d in recording.decisions if d.reason == INTERRUPTED]


def _interruption_note(recording: Recording) -> str:
    """What the red lines of the charts are."""
    count = len(_interruptions(recording))
    return f' <span class="interrupted">Red: EC2 interrupts {plural(count, "node")}.</span>' if count else ""


def _span(recording: Recording) -> str:
    start = f"{recording.start:%Y-%m-%d %H:%M:%S} UTC"
    return f"{start}, {terminal.age(timedelta(seconds=recording.end))} of cluster time"


def _tiles(recording: Recording) -> str:
    tiles = [*_cost_tiles(recording), *_node_tiles(recording)]
    pending = [s.pending for s in recording.samples if s.pending is not None]
    if pending:
        tiles.append((f"{max(pending)}", "peak of pending pods"))
    return html_page.tiles(tiles)


def _cost_tiles(recording: Recording) -> list[tuple[str, str]]:
    total, lower_bound = total_cost(recording)
    label = "total cost" if all(s.price is not None for s in recording.spans) else "cost of the nodes that exist"
    tiles = [(f"${total:.4f}" if 0 < total < _CENT * 100 else f"${total:,.2f}", label)]
    if lower_bound is not None:
        tiles.append((f"{lower_bound / total:.0%}", "lower bound, share of the total cost"))
    return [*tiles, (f"{terminal.usd(_peak_cost(recording))}/h", "peak cost")]


def _node_tiles(recording: Recording) -> list[tuple[str, str]]:
    launched = sum(s.launched is not None for s in recording.spans)
    terminated = sum(s.terminated is not None for s in recording.spans)
    tiles = [(f"{launched or len(recording.spans)}", f"nodes, {terminated} terminated")]
    seconds = [s.ready - s.created for s in recording.spans if s.ready is not None and s.created is not None]
    if seconds:
        tiles.append((f"{sum(seconds) / len(seconds):.0f} s", "average from NodeClaim to initialized"))
    return tiles


def _peak_cost(recording: Recording) -> float:
    return max((s.cost for s in recording.samples), default=0.0)


def _cost_label(recording: Recording) -> str:
    return f"Cost over time, peak {terminal.usd(_peak_cost(recording))} per hour; arrow keys read values"


def _pods_label(recording: Recording) -> str:
    peak = max((s.scheduled or 0 for s in recording.samples), default=0)
    return f"Pods over time, peak {peak} scheduled; arrow keys read values"


def _launches(recording: Recording) -> str:
    """Planned, bought and realised price of the latest decisions, as bars on one scale."""
    if not recording.launches:
        return '<p class="quiet">There are no launches.</p>'
    shown = recording.launches[-_MAX_LAUNCHES:]
    widest = max(max(launches.bought, launches.planned, launches.realised or 0.0) for launches in shown)
    rows = "".join(_launch_bars(launches, widest, recording) for launches in shown)
    hidden = len(recording.launches) - len(shown)
    more = f'<p class="quiet">{hidden} earlier decisions are not shown.</p>' if hidden else ""
    return f'{more}<div class="launches">{rows}</div>'


def _launch_bars(launches: RecordedLaunches, widest: float, recording: Recording) -> str:
    realised = launches.realised
    bars = [("planned", launches.planned, 0.0), ("bought", launches.bought, 0.0)]
    if realised is not None:
        bars.append(("realised", realised, min(launches.before, realised)))
    lanes = "".join(
        f'<div class="bar"><span class="before" style="width:{_percent(before, widest)}"></span>'
        f'<span class="{name}" style="width:{_percent(price - before, widest)}"></span>'
        f"<i>{name} {html.escape(terminal.usd(price))}/h{_excess(price - before, launches.planned, name)}</i></div>"
        for name, price, before in bars
    )
    title = f"{plural(launches.nodes, 'node')} for {plural(launches.pods, 'pod')}"
    return f"<div><p><b>{_time(launches.at, recording)}</b> {title}</p>{lanes}</div>"


def _percent(price: float, widest: float) -> str:
    return f"{_BAR_PERCENT * price / widest:.2f}%" if widest else "0"


def _excess(price: float, planned: float, name: str) -> str:
    """How much more or less than planned it is; for the realised price, without the nodes that existed before."""
    if name == "planned" or not planned:
        return ""
    if price <= 0:
        return ", of nodes that existed before"
    excess = round(price / planned - 1, 3)
    return f" ({excess:+.1%})" if excess else ""


def _decisions(recording: Recording) -> str:
    if not recording.decisions:
        return '<p class="quiet">There are no decisions.</p>'
    shown = recording.decisions[-_MAX_DECISIONS:]
    rows = "".join(_decision(d, recording) for d in shown)
    hidden = len(recording.decisions) - len(shown)
    more = f'<p class="quiet">{hidden} earlier decisions are not shown.</p>' if hidden else ""
    head = "".join(
        f"<th scope='col'{' class=figure' if name in {'Time', '$/h'} else ''}>{name}</th>" for name in _DECISION_COLUMNS
    )
    return (
        f'{more}<div class="scroll" tabindex="0" role="region" aria-label="Decisions"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _decision(decision: RecordedDecision, recording: Recording) -> str:
    savings = "" if not decision.savings else terminal.usd(-decision.savings, sign=True)
    cells = [
        ("figure time", _time(decision.at, recording)),
        ("node", decision.node.partition(".")[0]),
        (decision.outcome, decision.outcome),
        ("", decision.reason),
        ("why", decision.why),
        ("figure", savings),
    ]
    row = zip(_DECISION_COLUMNS, cells, strict=True)
    return "<tr>" + "".join(html_page.cell(name, text, class_=class_) for name, (class_, text) in row) + "</tr>"


def _time(at: float, recording: Recording) -> str:
    if recording.is_live or recording.end > _LONG_RUN_SECONDS:
        return f"{recording.start + timedelta(seconds=at):%Y-%m-%d %H:%M}"
    minutes, seconds = divmod(round(at), 60)
    return f"{minutes}:{seconds:02d}"
