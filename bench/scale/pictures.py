"""Draws docs/images/scale-*.svg: memory, time, bytes and dollars by nodes, one line for each series."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import cost_model
from bench.scale import cost, figures
from bench.scale.figures import MB
from bench.scale.invocations import BUSY, CLUSTERS, FIRST, FUNCTIONS, IDLE
from bench.scale.karpenter_watches import received
from infra import function_sizes
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

IMAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "images"
_WIDTH, _HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 30, 75, 45
_TICKS = 5
_COLUMNS = 2
"""Of the names of series."""
_COLOURS = ("#2f6fde", "#d9822b", "#2a9d6f", "#9a4fc2", "#57606a", "#c2334d")
_AXIS = "#57606a"


class Picture(Struct, kw_only=True):
    """Series by name; each has a value for each of ``nodes``. ``unit`` is that of the values."""

    name: str
    title: str
    unit: str
    nodes: tuple[int, ...]
    series: Mapping[str, tuple[float, ...]]


def save(saved: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> list[Path]:
    """Write all pictures."""
    paths = []
    for picture in of(saved):
        path = IMAGES / f"scale-{picture.name}.svg"
        path.write_text(draw(picture), encoding="utf-8")
        paths.append(path)
    return paths


def of(saved: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> list[Picture]:
    """The pictures of these figures."""
    nodes = tuple(saved)

    def hour(kind: str, part: int) -> tuple[float, ...]:
        return tuple(figures.an_hour(saved[n], kind)[part] for n in nodes)

    def watched(kind: str) -> tuple[float, ...]:
        return tuple(received(n, CLUSTERS[n], busy=kind == BUSY).bytes_an_hour / MB for n in nodes)

    kinds = (IDLE, BUSY)
    memory = {f: tuple(saved[n][f]["mib"] for n in nodes) for f in FUNCTIONS}
    time = {
        f"{f}, {kind}": tuple(figures.seconds(f, saved[n], kind, n) for n in nodes)
        for kind in (FIRST, BUSY)
        for f in FUNCTIONS
        if f != function_sizes.INTERRUPTION
    }
    requests = {kind: hour(kind, 0) for kind in kinds}
    traffic = {f"Tenon, {kind}": tuple(size / MB for size in hour(kind, 1)) for kind in kinds}
    traffic |= {f"Karpenter's watches, {kind} (computed)": watched(kind) for kind in kinds}
    totals = [cost.totals(saved[n], n) for n in nodes]
    dollars = {name: tuple(usd[name] for usd in totals) for name in totals[0]}
    dollars["two Karpenter replicas of 1 vCPU on Fargate"] = (cost_model.karpenter_totals()[0],) * len(nodes)
    drawn = (
        ("memory", "Memory of a warm process, without imports", "MiB", memory),
        ("time", "Billed time of an invocation", "s", time),
        ("requests", "Requests to the API server", "an hour", requests),
        ("bytes", "Received from the API server", "MB an hour", traffic),
        ("dollars", "Cost", "USD a month", dollars),
    )
    return [Picture(name=n, title=t, unit=u, nodes=nodes, series=s) for n, t, u, s in drawn]


def draw(picture: Picture) -> str:
    """The SVG document."""
    x = _scale(max(picture.nodes), _LEFT, _WIDTH - _RIGHT)
    top = _round_up(max(max(values) for values in picture.series.values()))
    y = _scale(top, _HEIGHT - _BOTTOM, _TOP)
    title = f"{picture.title}, {picture.unit}, by nodes"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
            f'font-size="12" role="img">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="16" fill="{_AXIS}">{escape(title)}</text>',
        *_axes(picture.nodes, top, x, y),
    ]
    for number, (name, values) in enumerate(picture.series.items()):
        parts += _line(number, name, list(zip(picture.nodes, values, strict=True)), x, y)
    return "\n".join([*parts, "</svg>", ""])


def _scale(most: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + value / most * (end - start)


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 8 and 10 times a power of ten.

    >>> _round_up(870), _round_up(0.3)
    (1000.0, 0.4)
    """
    power = 10.0 ** math.floor(math.log10(value or 1.0))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _axes(nodes: Sequence[int], top: float, x: Callable[[float], float], y: Callable[[float], float]) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="{_AXIS}"/>'
    for number in nodes:
        if number * _TICKS >= max(nodes) / 4:
            yield f'<text x="{x(number):.1f}" y="{bottom + 18}" text-anchor="middle" fill="{_AXIS}">{number:,}</text>'
    for value in (top * i / (_TICKS - 1) for i in range(_TICKS)):
        yield f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="{_AXIS}">{value:,.6g}</text>'


def _line(
    number: int,
    name: str,
    points: Sequence[tuple[int, float]],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> Iterator[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    path = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for n, value in points:
        yield f'<circle cx="{x(n):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>'
    row, column = divmod(number, _COLUMNS)
    left = _LEFT + (_WIDTH - _LEFT) // _COLUMNS * column
    yield f'<text x="{left}" y="{34 + 14 * row}" fill="{colour}">{escape(name)}</text>'
