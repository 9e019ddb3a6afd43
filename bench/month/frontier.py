"""``python -m bench.month.frontier`` measures dollars against moved pods, of both rules at five settings.

What users set decides both: the pods' eviction cost (annotation ``karpenter.sh/disruption-cost``), by which Tenon
multiplies what a move costs, and ``consolidateAfter``, after which Karpenter's rules move pods. Each point is a
simulation of some days, saved in frontier.json; ``--save`` draws the pictures of docs/ too, of the first seed
(:mod:`bench.month.frontier_picture`), and computes what no decisions could go below.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import saved_figures
from bench.month import comparison, frontier_picture, load_generator, whole_node_bound
from bench.month.catalog import month_catalog
from bench.month.comparison import KARPENTER, TENON
from bench.month.frontier_points import Effort, Frontier, Point, cost_at_equal_moves, cost_within
from bench.month.karpenter_rules import KarpenterRules
from bench.month.load_generator import CAPACITY_TYPES, DAY, LOADS
from bench.month.tenon_rules import INTERVAL, SETS, TenonRules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.month.simulated_cluster import Rules

EVICTION_COSTS = (0.1, 0.5, 1.0, 4.0, 10.0)
"""Of each pod; 1 is that of a pod without annotations, 10 the most that counts."""
CONSOLIDATE_AFTER = (0, 30, 300, 900, 3600)
"""Seconds; the month has 30."""
RESULTS = Path(__file__).parent / "frontier.json"
DAYS, SEED = 1.0, 1
USUAL = 30
"""Seconds of consolidateAfter, of the rival that shares of moves and dollars refer to: what the month has."""
TARGETS = {"services": ((0.5, 1.0), (1.0, 0.97)), "batch": ((0.6, 0.99),), "gpus": ((0.8, 0.75),)}
"""By load: with at most this share of the rival's moves, at most this share of its dollars."""


def measure(load: str, *, seed: int, days: float, effort: Effort) -> Iterator[Point]:
    """The points of a load, one simulation after another."""
    seconds = round(days * DAY)
    trace = load_generator.generate(load, seed=seed, seconds=seconds)
    for name, setting, rules in _rules(effort):
        outcome = comparison.simulate(trace, rules, capacity_types=CAPACITY_TYPES[load], seed=seed, seconds=seconds)
        yield Point(
            rules=name,
            setting=setting,
            dollars=outcome.dollars,
            moved=outcome.moved,
            wait_p99=outcome.wait_p99,
            nodes=outcome.nodes,
        )


def _bound(load: str, *, seed: int, days: float) -> float:
    """USD that whole nodes cost at least."""
    seconds = round(days * DAY)
    trace = load_generator.generate(load, seed=seed, seconds=seconds)
    return whole_node_bound.lower_bound(trace, month_catalog(CAPACITY_TYPES[load]), seconds=seconds)


def _rules(effort: Effort) -> Iterator[tuple[str, float, Rules]]:
    for seconds in CONSOLIDATE_AFTER:
        yield KARPENTER, seconds, KarpenterRules(consolidate_after=seconds)
    for cost in EVICTION_COSTS:
        yield TENON, cost, TenonRules(eviction_cost=cost, sets=effort.sets, interval=effort.interval)


def save(frontier: Frontier) -> None:
    """Save a load's frontier in place of its earlier one."""
    document = {
        "seed": frontier.seed,
        "days": frontier.days,
        "sets": frontier.effort.sets,
        "interval": frontier.effort.interval,
        "bound": round(frontier.bound, 2),
        "points": [[p.rules, p.setting, p.dollars, p.moved, p.wait_p99, p.nodes] for p in frontier.points],
    }
    saved = _saved() | {f"{frontier.load}, seed {frontier.seed}": {"load": frontier.load, **document}}
    saved_figures.write(RESULTS, saved)


def _saved() -> dict[str, dict[str, Any]]:
    return saved_figures.read(RESULTS)


def _read(saved: Mapping[str, Any]) -> Frontier:
    names = ("rules", "setting", "dollars", "moved", "wait_p99", "nodes")
    points = tuple(Point(**dict(zip(names, values, strict=True))) for values in saved["points"])
    effort = Effort(sets=saved["sets"], interval=saved["interval"])
    return Frontier(
        load=saved["load"],
        seed=saved["seed"],
        days=saved["days"],
        effort=effort,
        points=points,
        bound=saved["bound"],
    )


def run() -> list[dict[str, str]]:
    """The rows of the saved points."""
    return [row for saved in _saved().values() for row in _rows(_read(saved))]


def _rows(frontier: Frontier) -> Iterator[dict[str, str]]:
    effort = frontier.effort
    method = (
        f"{frontier.days:g} days, {effort.sets} sets each {effort.interval} s; `python -m bench.month.frontier --save "
        f"--days {frontier.days:g} --seed {frontier.seed} --sets {effort.sets} --interval {effort.interval}`"
    )
    of_load = f"{frontier.load}, seed {frontier.seed}:"
    titles = {KARPENTER: "Karpenter's rules by consolidateAfter", TENON: "Tenon by the price of a move"}
    for rules, title in titles.items():
        points = frontier.of(rules)
        figures = ", ".join(f"{p.label}: ${p.dollars:.2f}/{p.moved}/{p.wait_p99:.0f} s" for p in points)
        yield {
            "measurement": f"{of_load} dollars/moved pods/p99 until a pod has a node, {title}",
            "target": "-",
            "result": figures,
            "method": method,
        }
    yield {
        "measurement": f"{of_load} Tenon's dollars at equal moves, relative to Karpenter's rules",
        "target": "-",
        "result": ", ".join(_equal_moves(frontier)) or "no equal moves",
        "method": "interpolated between the points above",
    }
    (usual,) = (p for p in frontier.of(KARPENTER) if p.setting == USUAL)
    yield {
        "measurement": f"{of_load} lower bound of the dollars with whole nodes, relative to Karpenter's rules with "
        f"{usual.label}",
        "target": "-",
        "result": f"{frontier.bound / usual.dollars:.1%} (${frontier.bound:.2f})",
        "method": "an integer program for each five minutes, by bench/month/whole_node_bound.py; pods may be split",
    }
    for share, target in TARGETS[frontier.load]:
        dollars = cost_within(frontier.of(TENON), share * usual.moved)
        yield {
            "measurement": f"{of_load} Tenon's dollars with at most {share:.0%} of the moves, relative to Karpenter's "
            f"rules with {usual.label}",
            "target": f"at most {target:.0%}",
            "result": f"{dollars / usual.dollars:.1%}" if dollars is not None else "no setting moves so few",
            "method": "interpolated between the points above",
        }


def _equal_moves(frontier: Frontier) -> Iterator[str]:
    for point in frontier.of(KARPENTER):
        dollars = cost_at_equal_moves(frontier.of(TENON), point.moved)
        if dollars is not None:
            yield f"{dollars / point.dollars:.1%} ({point.label})"


def main(arguments: Sequence[str]) -> int:
    """Measure the frontiers of some loads."""
    parser = argparse.ArgumentParser(prog="python -m bench.month.frontier", description=__doc__)
    parser.add_argument("--days", type=float, default=DAYS, help="how many days are simulated")
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--sets", type=int, default=SETS, help="sets of nodes that Tenon evaluates in a search")
    parser.add_argument("--interval", type=int, default=INTERVAL, help="seconds between Tenon's searches")
    parser.add_argument("--save", action="store_true", help=f"save the points into {RESULTS.name}, and draw pictures")
    options = parser.parse_args(arguments)
    gc.freeze()
    gc.set_threshold(200_000)  # most objects live for long, and few are in cycles
    effort = Effort(sets=options.sets, interval=options.interval)
    for load in options.loads:
        points = []
        for point in measure(load, seed=options.seed, days=options.days, effort=effort):
            points.append(point)
            print(
                f"{load}, {point.rules} {point.label}: ${point.dollars:.2f}, {point.moved} moved, "
                f"p99 {point.wait_p99:.0f} s, {point.nodes:.0f} nodes",
                flush=True,
            )
        if options.save:
            frontier = Frontier(
                load=load,
                seed=options.seed,
                days=options.days,
                effort=effort,
                points=tuple(points),
                bound=_bound(load, seed=options.seed, days=options.days),
            )
            save(frontier)
            if frontier.seed == SEED:
                frontier_picture.save(frontier)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
