"""The comparison as one HTML page that makes no network requests, in the look of ``tenon report``."""

from __future__ import annotations

import html
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cli import html_page, terminal
from cli.shadow.comparison import compare
from cli.shadow.output import NAMES, dollars, sentences, warnings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cli.shadow.comparison import ShadowTotal
    from cli.shadow.days import ShadowDays
    from shared.shadow.ledger import Sample

_WIDTH, _HEIGHT = 1000, 200
_MAX_EVENTS, _MAX_PODS = 1000, 200


def save(shadow: ShadowDays, output: Path) -> None:
    """Write the page.

    Raises:
        UsageError: the file can't be written.
    """
    html_page.save(page(shadow), output)


def page(shadow: ShadowDays) -> str:
    """The page's HTML."""
    total = compare(shadow.days)
    samples = [sample for day in shadow.days for sample in day.samples]
    notes = [*sentences(total), *shadow.record.notes, *warnings(total)]
    first, last = shadow.days[0].date, shadow.days[-1].date
    parts = {
        "title": html.escape(f"Shadow mode of {shadow.cluster}"),
        "span": html.escape(first if first == last else f"{first} to {last}"),
        "tiles": _tiles(total),
        "notes": html_page.notes(notes),
        "peak": terminal.usd(_peak(samples)),
        "chart": _chart(samples),
        "days": _days(shadow),
        "offerings": _offerings(total),
        "pods": _pods(shadow),
        "events": _events(shadow),
        "styles": html_page.styles(),
    }
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return html_page.filled(template, parts)


def _tiles(total: ShadowTotal) -> str:
    tiles = [
        (dollars(total.real.dollars), "what ran"),
        (dollars(total.shadow.dollars), "what Tenon would have run"),
        (dollars(total.saved), "saved" if total.saved_share is None else f"saved, {total.saved_share:.1%}"),
        (f"{total.real.instance_hours:,.1f} / {total.shadow.instance_hours:,.1f}", "instance-hours, real / Tenon"),
        (f"{total.moved:,}", "pods moved"),
        (f"{total.unplaced_pods:,}", "pods without a place"),
    ]
    return html_page.tiles(tiles)


def _peak(samples: Iterable[Sample]) -> float:
    return max((max(s.real, s.shadow) for s in samples), default=0.0)


def _chart(samples: Sequence[Sample]) -> str:
    """Both costs as steps over time."""
    if not samples:
        return '<p class="quiet">There is no run.</p>'
    begin, end = samples[0].at, samples[-1].at
    seconds, peak = max((end - begin).total_seconds(), 1.0), _peak(samples) or 1.0

    def steps(values: Iterable[float]) -> str:
        points: list[str] = []
        for sample, value in zip(samples, values, strict=True):
            x = _WIDTH * (sample.at - begin).total_seconds() / seconds
            y = _HEIGHT * (1 - value / peak)
            points.append(f"{x:.1f} {y:.1f}" if not points else f"H{x:.1f}V{y:.1f}")
        return "M" + "".join(points)

    label = f"From {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, at most {terminal.usd(peak)} per hour"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<path class="real" d="{steps(s.real for s in samples)}"/>'
        f'<path class="shadow" d="{steps(s.shadow for s in samples)}"/></svg>'
        f'<p class="quiet">{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC</p>'
    )


def _days(shadow: ShadowDays) -> str:
    columns = ("Day", "Counted", "Real $", "Tenon $", "Saved $", "Launched", "Removed", "Moved", "Without a place")
    rows = []
    for day in shadow.days:
        own = compare([day])
        money = (f"{own.real.dollars:,}", f"{own.shadow.dollars:,}", f"{own.saved:,}")
        counts = (own.launched, sum(own.removed.values()), own.moved, own.unplaced_pods)
        rows.append((day.date, _span(own.seconds), *money, *(f"{count:,}" for count in counts)))
    return html_page.table(columns, rows, label="Days", figures=len(columns) - 1)


def _offerings(total: ShadowTotal) -> str:
    rows = (
        (
            NAMES[o.fleet],
            o.instance_type,
            o.capacity_type,
            o.zone,
            f"{o.instance_hours:,.1f}",
            f"{o.dollars:,}",
        )
        for o in total.offerings
    )
    columns = ("Fleet", "Instance type", "Capacity type", "Zone", "Hours", "$")
    return html_page.table(columns, rows, label="What ran", figures=2)


def _pods(shadow: ShadowDays) -> str:
    pods = sorted((p for day in shadow.days for p in day.unplaced), key=lambda p: (-p.seconds, p.pod))
    rows = ((p.pod, p.reason, _span(p.seconds)) for p in pods[:_MAX_PODS])
    return html_page.table(("Pod", "Reason", "For"), rows, label="Pods without a place", figures=1)


def _events(shadow: ShadowDays) -> str:
    events = sorted((e for day in shadow.days for e in day.events), key=lambda e: e.at)[-_MAX_EVENTS:]
    rows = (
        (f"{e.at:%Y-%m-%d %H:%M:%S}", e.action, e.node, e.pool, str(e.offering), e.reason, str(e.pods), e.price)
        for e in events
    )
    columns = ("Time", "Action", "Node", "NodePool", "Offering", "Reason", "Pods", "$/h")
    return html_page.table(columns, rows, label="What Tenon would have done", figures=2)


def _span(seconds: int) -> str:
    return terminal.age(timedelta(seconds=seconds))
