"""The points of a frontier, dollars against moved pods, and how they compare at equal moves."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from bench.month.comparison import TENON
from bench.month.tenon_rules import INTERVAL, SETS
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class Effort(Struct, kw_only=True):
    """How much Tenon searches: sets of nodes in a search, and seconds between searches."""

    sets: int = SETS
    interval: int = INTERVAL


class Point(Struct, kw_only=True):
    """One simulation: the rules with what was set, and its outcome."""

    rules: str
    setting: float
    dollars: float
    moved: int
    wait_p99: float
    nodes: float

    @property
    def label(self) -> str:
        """What was set, in short."""
        if self.rules == TENON:
            return f"{self.setting:g}×"
        return f"{self.setting:g} s" if self.setting < 60 else f"{self.setting / 60:g} min"


class Frontier(Struct, kw_only=True):
    """The points of a load, by rules and then by what was set."""

    load: str
    seed: int
    days: float
    effort: Effort
    points: tuple[Point, ...]
    bound: float = 0.0
    """USD that whole nodes cost at least (:mod:`bench.month.whole_node_bound`)."""

    def of(self, rules: str) -> tuple[Point, ...]:
        """The points of these rules."""
        return tuple(p for p in self.points if p.rules == rules)


def cost_at_equal_moves(points: Iterable[Point], moved: float) -> float | None:
    """USD of these points at this number of moved pods, interpolated; None outside of the measured range."""
    ordered = sorted(points, key=lambda p: p.moved)
    for fewer, more in pairwise(ordered):
        if fewer.moved <= moved <= more.moved:
            share = (moved - fewer.moved) / (more.moved - fewer.moved) if more.moved > fewer.moved else 0.0
            return fewer.dollars + share * (more.dollars - fewer.dollars)
    return None


def cost_within(points: Iterable[Point], moved: float) -> float | None:
    """The lowest USD of these points for at most as many moved pods, interpolated; None if all move more."""
    ordered = sorted(points, key=lambda p: p.moved)
    costs = [p.dollars for p in ordered if p.moved <= moved]
    between = cost_at_equal_moves(ordered, moved)
    return min([*costs, between] if between is not None else costs, default=None)
