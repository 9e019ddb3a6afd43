"""The saved outcomes of the months, and what bench/RESULTS.md says of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from bench import saved_figures
from bench.month.comparison import KARPENTER, TENON
from shared.disruption.disruption_cost import RESTART_COST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.month.comparison import Month

RESULTS = Path(__file__).parent / "results.json"
COST_TARGET, MOVED_TARGET = "at most 90%", "at most 50%"
Saved = dict[str, Any]
"""A month: its days, lower bound in USD, and outcomes by rules."""


def save(month: Month) -> None:
    """Save the totals with those of other loads and seeds, without the hours."""
    totals: Saved = {"days": len(month.bound) / 24, "lower_bound": round(sum(month.bound), 4)}
    for rules, outcome in month.outcomes.items():
        totals[rules] = {k: v for k, v in asdict(outcome).items() if not k.endswith("_by_hour")}
    saved = _saved()
    saved.setdefault(month.load, {})[str(month.seed)] = totals
    saved_figures.write(RESULTS, saved)


def _saved() -> dict[str, dict[str, Saved]]:
    """The months by load and seed."""
    return saved_figures.read(RESULTS)


def run() -> list[dict[str, str]]:
    """The rows of the saved outcomes, and of all loads together."""
    saved = _saved()
    rows = _total_rows(saved)
    for load, by_seed in saved.items():
        days = ", ".join(sorted({f"{s['days']:g}" for s in by_seed.values()}))
        how = f"{days} days, seed {', '.join(by_seed)}; `python -m bench.month --save --days {days}`"
        figures = _figures(list(by_seed.values()))
        rows += [_row(f"{load}: {measurement}", target, result, how) for measurement, target, result in figures]
    return rows


def _row(measurement: str, target: str, result: str, method: str) -> dict[str, str]:
    return {"measurement": measurement, "target": target, "result": result, "method": method}


def _total_rows(saved: Mapping[str, Mapping[str, Saved]]) -> list[dict[str, str]]:
    """The sums over all loads by seed, of the seeds that all of them have."""
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in saved.values()))) if saved else []
    method = f"the sums of the rows below, seed {', '.join(seeds)}"
    figures = (("dollars", "dollars", COST_TARGET), ("voluntarily moved pods", "moved", MOVED_TARGET))
    return [
        _row(
            f"all loads together: {measurement}, relative to Karpenter's rules",
            target,
            ", ".join(_ratio_of_sums(figure, [by_seed[seed] for by_seed in saved.values()]) for seed in seeds),
            method,
        )
        for measurement, figure, target in figures
        if seeds
    ]


def _ratio_of_sums(figure: str, months: Sequence[Saved]) -> str:
    tenon, karpenter = (sum(month[rules][figure] for month in months) for rules in (TENON, KARPENTER))
    return f"{tenon / karpenter:.1%} ({tenon:,.0f} to {karpenter:,.0f})"


def _figures(months: Sequence[Saved]) -> list[tuple[str, str, str]]:
    """Measurement, target and result of each figure of a load, by seed."""
    pairs = [(month[TENON], month[KARPENTER]) for month in months]
    bounds = [(month["lower_bound"], month[KARPENTER]["dollars"]) for month in months]
    with_moves = [_with_moves(t) / _with_moves(k) for t, k in pairs]
    figures: list[tuple[str, str, list[str]]] = [
        (
            "dollars, relative to Karpenter's rules",
            COST_TARGET,
            [f"{t['dollars'] / k['dollars']:.1%} (${t['dollars']:.0f} to ${k['dollars']:.0f})" for t, k in pairs],
        ),
        (
            "lower bound of the dollars, relative to Karpenter's rules",
            "-",
            [f"{bound / dollars:.1%} (${bound:.0f})" for bound, dollars in bounds],
        ),
        (
            "voluntarily moved pods, relative to Karpenter's rules",
            MOVED_TARGET,
            [f"{t['moved'] / k['moved']:.1%} ({t['moved']} to {k['moved']})" for t, k in pairs],
        ),
        (
            f"dollars with ${RESTART_COST} for each moved pod, relative to Karpenter's rules",
            "-",
            [f"{ratio:.1%}" for ratio in with_moves],
        ),
        (
            "seconds until a pod has a node, median and 99 %, Tenon and Karpenter's rules",
            "no worse",
            [f"{_waits(t)} and {_waits(k)}" for t, k in pairs],
        ),
        (
            "nodes on average, Tenon and Karpenter's rules",
            "-",
            [f"{t['nodes']:.0f} and {k['nodes']:.0f}" for t, k in pairs],
        ),
    ]
    return [(measurement, target, ", ".join(by_seed)) for measurement, target, by_seed in figures]


def _with_moves(outcome: Mapping[str, float]) -> float:
    """USD with the price that Tenon puts on a restart."""
    return outcome["dollars"] + RESTART_COST * outcome["moved"]


def _waits(outcome: Mapping[str, float]) -> str:
    return f"{outcome['wait_p50']:.0f}/{outcome['wait_p99']:.0f}"
