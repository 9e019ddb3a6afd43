"""The frontier of dollars against moved pods: a point for each setting, compared at equal moves."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from bench.month import frontier_picture, load_generator
from bench.month.catalog import month_catalog
from bench.month.comparison import KARPENTER, TENON
from bench.month.frontier_points import Effort, Frontier, Point, cost_at_equal_moves, cost_within
from bench.month.karpenter_rules import KarpenterRules
from bench.month.load_generator import HOUR
from bench.month.simulated_cluster import SimulatedCluster
from bench.month.tenon_rules import TenonRules

SPOT = ("spot", "on-demand")
SECONDS = 6 * HOUR


def point(rules: str, setting: float, dollars: float, moved: int) -> Point:
    return Point(rules=rules, setting=setting, dollars=dollars, moved=moved, wait_p99=43.0, nodes=20.0)


def moved_pods(rules: TenonRules | KarpenterRules) -> int:
    trace = load_generator.generate("batch", seed=1, seconds=SECONDS)
    return SimulatedCluster(trace, month_catalog(SPOT), rules, seed=1, seconds=SECONDS).run().moved


def test_a_higher_price_of_a_move_moves_fewer_pods() -> None:
    assert moved_pods(TenonRules(eviction_cost=10.0)) < moved_pods(TenonRules(eviction_cost=0.1))


def test_a_longer_consolidate_after_moves_fewer_pods() -> None:
    assert moved_pods(KarpenterRules(consolidate_after=HOUR)) < moved_pods(KarpenterRules(consolidate_after=0))


@pytest.mark.parametrize(("moved", "dollars"), [(100, 50.0), (150, 45.0), (200, 40.0), (99, None), (201, None)])
def test_dollars_at_equal_moves_lie_between_the_neighbours(moved: int, dollars: float | None) -> None:
    points = [point(TENON, 1, 40.0, 200), point(TENON, 2, 50.0, 100)]
    assert cost_at_equal_moves(points, moved) == dollars


@pytest.mark.parametrize(("moved", "dollars"), [(100, 50.0), (150, 45.0), (300, 40.0), (99, None)])
def test_with_at_most_as_many_moves_fewer_are_allowed(moved: int, dollars: float | None) -> None:
    points = [point(TENON, 0.1, 41.0, 250), point(TENON, 1, 40.0, 200), point(TENON, 2, 50.0, 100)]
    assert cost_within(points, moved) == dollars


def test_the_picture_has_each_point_with_fewer_moves_to_the_left_and_fewer_dollars_below() -> None:
    points = (
        point(KARPENTER, 30, 300.0, 900),
        point(KARPENTER, 3600, 350.0, 200),
        point(TENON, 1, 290.0, 400),
        point(TENON, 4, 310.0, 100),
    )
    shown = frontier_picture.picture(Frontier(load="services", seed=1, days=1, effort=Effort(), points=points))
    circles = ET.fromstring(shown).findall("{http://www.w3.org/2000/svg}circle")  # noqa: S314 (our own text)
    by_moves = sorted(circles, key=lambda c: float(c.get("cx", "")))
    by_dollars = sorted(circles, key=lambda c: -float(c.get("cy", "")))
    drawn = [points[i] for i in (2, 3, 0, 1)]  # Tenon's line is first
    assert [drawn[circles.index(c)].moved for c in by_moves] == [100, 200, 400, 900]
    assert [drawn[circles.index(c)].dollars for c in by_dollars] == [290.0, 300.0, 310.0, 350.0]
    assert all(p.label in shown for p in points)
