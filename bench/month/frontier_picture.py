"""Draws a load's frontier as SVG: moved pods to the right, dollars upwards, one line for each of the rules."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from bench.month.comparison import KARPENTER, TENON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.month.frontier_points import Frontier, Point

IMAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "images"
_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 40, 50, 50
_TICKS = 5
_MARGIN = 0.08
"""Of the range of the values, on each side."""
_COLOURS = {TENON: "#2f6fde", KARPENTER: "#d9822b"}
_TITLES = {TENON: "Tenon, by the price of a move", KARPENTER: "Karpenter's rules, by consolidateAfter"}


def save(frontier: Frontier) -> Path:
    """Write docs/images/frontier-LOAD.svg."""
    path = IMAGES / f"frontier-{frontier.load}.svg"
    path.write_text(picture(frontier), encoding="utf-8")
    return path


def picture(frontier: Frontier) -> str:
    """The SVG document."""
    x = _scale([p.moved for p in frontier.points], _LEFT, _WIDTH - _RIGHT)
    y = _scale([p.dollars for p in frontier.points], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
            f'font-size="12" role="img">'
        ),
        f"<title>{escape(frontier.load)}: dollars against moved pods</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_axes(frontier, x, y),
    ]
    for i, rules in enumerate(_TITLES):
        parts += _line(frontier.of(rules), _COLOURS[rules], x, y)
        parts.append(f'<text x="{_LEFT + 260 * i}" y="24" fill="{_COLOURS[rules]}">{escape(_TITLES[rules])}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, high = min(values), max(values)
    margin = (high - low) * _MARGIN or 1.0
    low, high = low - margin, high + margin
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _axes(frontier: Frontier, x: Callable[[float], float], y: Callable[[float], float]) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="#57606a"/>'
    for value in _ticks([p.moved for p in frontier.points]):
        yield f'<text x="{x(value):.1f}" y="{bottom + 18}" text-anchor="middle" fill="#57606a">{value:.0f}</text>'
    for value in _ticks([p.dollars for p in frontier.points]):
        yield f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#57606a">${value:.0f}</text>'
    days = f"{frontier.days:g} day{'' if frontier.days == 1 else 's'}"
    yield f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 12}" text-anchor="end" fill="#57606a">moved pods in {days}</text>'


def _ticks(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [low + (high - low) * i / (_TICKS - 1) for i in range(_TICKS)]


def _line(
    points: Sequence[Point], colour: str, x: Callable[[float], float], y: Callable[[float], float]
) -> Iterator[str]:
    places = [(x(p.moved), y(p.dollars)) for p in points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for point, (a, b) in zip(points, places, strict=True):
        yield f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>'
        yield f'<text x="{a + 7:.1f}" y="{b - 7:.1f}" fill="{colour}">{escape(point.label)}</text>'
