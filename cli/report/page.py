"""A recording as one HTML page: styles, scripts, charts and data are all in it, and it asks no network for anything.

The charts are uPlot's (51 KB, kept beside this file with its license): smaller by far than what else is kept up, and it
draws steps over time, which is all that is needed. The timeline is ours.
"""

from __future__ import annotations

import html
import re
from datetime import timedelta
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from cli import terminal
from cli.report.recording import spent

if TYPE_CHECKING:
    from cli.report.recording import Decided, Recording

_LONG = 3 * 3600
_MOST_DECISIONS = 500
_CENT = 0.01
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(recording: Recording) -> str:
    """The page's HTML."""
    parts = {
        "title": html.escape(recording.title),
        "span": html.escape(_span(recording)),
        "tiles": _tiles(recording),
        "notes": "".join(f'<p class="note">{html.escape(note)}</p>' for note in recording.notes),
        "cost_label": html.escape(_cost_label(recording)),
        "pods_label": html.escape(_pods_label(recording)),
        "decisions": _decisions(recording),
        "data": _data(recording),
        "styles": _asset("uplot.css") + _asset("page.css"),
        "scripts": _asset("uplot.js") + "\n" + _asset("page.js"),
    }
    # in one pass: what a user wrote is never taken for a place to fill in
    return _PLACE.sub(lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (files("cli.report") / "page" / name).read_text(encoding="utf-8")


def _data(recording: Recording) -> str:
    """The recording as JSON that can stand in a script element."""
    value = {**msgspec.to_builtins(recording), "start": recording.start.timestamp()}
    text = msgspec.json.encode(value).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _span(recording: Recording) -> str:
    start = f"{recording.start:%Y-%m-%d %H:%M:%S} UTC"
    return f"{start}, {terminal.age(timedelta(seconds=recording.end))} of cluster time"


def _tiles(recording: Recording) -> str:
    total, least = spent(recording)
    launched = [s for s in recording.spans if s.launched is not None]
    waits = [s.ready - s.asked for s in recording.spans if s.ready is not None and s.asked is not None]
    peak = max((s.cost for s in recording.samples), default=0.0)
    gone = sum(s.gone is not None for s in recording.spans)
    tiles = [(f"${total:.4f}" if 0 < total < _CENT * 100 else f"${total:,.2f}", "paid in all")]
    if least is not None:
        tiles.append((f"{least / total:.0%}" if total else "–", "of it no placing could save"))
    tiles.append((f"{terminal.usd(peak)}/h", "at most"))
    tiles.append((f"{len(launched) or len(recording.spans)}", f"nodes, {gone} gone again"))
    if waits:
        tiles.append((f"{sum(waits) / len(waits):.0f} s", "from claim to ready, on average"))
    pending = max((s.pending or 0 for s in recording.samples), default=0)
    if any(s.pending is not None for s in recording.samples):
        tiles.append((f"{pending}", "pods pending at most"))
    return "".join(f'<div class="tile"><b>{html.escape(b)}</b><span>{html.escape(s)}</span></div>' for b, s in tiles)


def _cost_label(recording: Recording) -> str:
    peak = max((s.cost for s in recording.samples), default=0.0)
    return f"Cost over time, at most {terminal.usd(peak)} per hour; arrow keys go through it"


def _pods_label(recording: Recording) -> str:
    most = max((s.placed or 0 for s in recording.samples), default=0)
    return f"Pods over time, at most {most} on nodes; arrow keys go through it"


def _decisions(recording: Recording) -> str:
    if not recording.decisions:
        return '<p class="quiet">None was made.</p>'
    shown = recording.decisions[-_MOST_DECISIONS:]
    rows = "".join(_decision(d, recording) for d in shown)
    left = len(recording.decisions) - len(shown)
    more = f'<p class="quiet">The {left} before that are left out.</p>' if left else ""
    head = "".join(
        f"<th scope='col'{' class=figure' if name in {'When', '$/h'} else ''}>{name}</th>"
        for name in ("When", "Node", "Decision", "Reason", "Why", "$/h")
    )
    return (
        f'{more}<div class="scroll" tabindex="0" role="region" aria-label="Decisions"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _decision(decided: Decided, recording: Recording) -> str:
    saved = "" if not decided.savings else terminal.usd(-decided.savings, sign=True)
    cells = [
        ("figure", _when(decided.at, recording)),
        ("", decided.node.partition(".")[0]),
        (decided.outcome, decided.outcome),
        ("", decided.reason),
        ("", decided.why),
        ("figure", saved),
    ]
    return "<tr>" + "".join(f'<td class="{c}">{html.escape(text)}</td>' for c, text in cells) + "</tr>"


def _when(at: float, recording: Recording) -> str:
    if recording.end > _LONG:
        return f"{recording.start + timedelta(seconds=at):%m-%d %H:%M}"
    minutes, seconds = divmod(round(at), 60)
    return f"{minutes}:{seconds:02d}"
