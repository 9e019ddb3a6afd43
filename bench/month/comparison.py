"""A month of money: thirty days of generated load, or a trace, under Tenon's decisions and under a rival's.

``python -m bench.month`` plays three loads with three seeds each (:mod:`bench.month.load_generator`), in two processes;
``--save`` saves into comparison.json what :func:`run` reports, ``--page FILE`` writes a page with charts. ``write DIR``
writes the loads as CSV, ``play FILE`` plays one such file, or another trace with these columns
(:mod:`bench.month.load_trace`).
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.month import html_page, load_generator, load_trace, price_bound, simulated_fleet
from bench.month.catalog import month_catalog
from bench.month.karpenter_rules import KarpenterRule
from bench.month.load_generator import CAPACITY_TYPES, DAY, HOUR, LOADS
from bench.month.simulated_cluster import PlayedCluster
from bench.month.tenon_rules import TenonRule
from cli.errors import CommandError
from cli.report import charts
from shared.disruption.disruption_cost import RESTART_COST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.month.load_trace import Trace
    from bench.month.simulated_fleet import Played

RESULTS = Path(__file__).parent / "comparison.json"
RULES = {"tenon": TenonRule, "greedy": KarpenterRule}
SEEDS = (1, 2, 3)
DAYS = 30
COST_TARGET, MOVED_TARGET = 0.90, 0.50
WORKERS = 2
_SPOT = ("spot", "on-demand")


@dataclass(frozen=True, kw_only=True)
class Month:
    """A load by its name and seed under each rule, and its lower bound, USD per hour of each hour."""

    load: str
    seed: int
    outcomes: Mapping[str, Outcome]
    bound: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A month under one rule. Waits are seconds of pods until a node, moved pods apart; nodes are the average.

    ``cost`` and ``nodes_by_hour`` are averages (USD per hour) and numbers of nodes of each hour.
    """

    dollars: float
    moved: int
    wait_p50: float
    wait_p99: float
    moved_wait_p99: float
    nodes: float
    launched: int
    commands: int
    invalid: int
    processor_seconds: float
    cost_by_hour: Sequence[float]
    nodes_by_hour: Sequence[float]


def play(trace: Trace, rule: str, *, capacity_types: tuple[str, ...], seed: int, seconds: int) -> Outcome:
    """The outcome of a trace's first seconds under a rule."""
    began = time.process_time()
    catalog = month_catalog(capacity_types)
    played = PlayedCluster(trace, catalog, RULES[rule](), seed=seed, seconds=seconds).play()
    price = simulated_fleet.list_price(catalog)
    cost = _by_hour(played, {o: price({o: 1}) for o in _offerings(played)}, seconds)
    nodes = _by_hour(played, dict.fromkeys(_offerings(played), 1.0), seconds)
    waits, moved_waits = played.waits or [0], played.moved_waits or [0]
    return Outcome(
        dollars=round(simulated_fleet.dollars(played.spans, price), 4),
        moved=played.moved,
        wait_p50=float(np.percentile(waits, 50)),
        wait_p99=round(float(np.percentile(waits, 99)), 1),
        moved_wait_p99=round(float(np.percentile(moved_waits, 99)), 1),
        nodes=round(float(np.mean(nodes)), 1),
        launched=len(played.spans),
        commands=played.commands,
        invalid=played.invalid,
        processor_seconds=round(time.process_time() - began),
        cost_by_hour=cost,
        nodes_by_hour=nodes,
    )


def _offerings(played: Played) -> set[tuple[str, str, str]]:
    return {(s.instance_type, s.zone, s.capacity_type) for s in played.spans}


def _by_hour(played: Played, weight: Mapping[tuple[str, str, str], float], seconds: int) -> list[float]:
    """The average of each hour of the running nodes' weights."""
    total = np.zeros(-(-seconds // HOUR))
    for span in played.spans:
        value = weight[span.instance_type, span.zone, span.capacity_type]
        for hour in range(span.launched // HOUR, -(-span.terminated // HOUR)):
            overlap = min(span.terminated, (hour + 1) * HOUR) - max(span.launched, hour * HOUR)
            total[hour] += value * overlap / HOUR
    return [round(float(v), 4) for v in total]


def _play_load(load: str, seed: int, rule: str, seconds: int) -> Outcome:
    gc.freeze()
    gc.set_threshold(200_000)  # most objects live for long, and few are in cycles
    trace = load_generator.generate(load, seed=seed, seconds=seconds)
    return play(trace, rule, capacity_types=CAPACITY_TYPES[load], seed=seed, seconds=seconds)


def bound_by_hour(trace: Trace, capacity_types: tuple[str, ...], seconds: int) -> list[float]:
    """The lower bound, USD per hour, of each hour."""
    rates = price_bound.lower_bound(trace, month_catalog(capacity_types), seconds=seconds)
    steps = HOUR // price_bound.STEP
    return [round(sum(rates[i : i + steps]) / steps, 4) for i in range(0, len(rates), steps)]


def measure(loads: Sequence[str], seeds: Sequence[int], seconds: int) -> Iterator[Month]:
    """The month of each load and seed, with its lower bound by hour, all loads of a seed before the next."""
    for load in loads:
        month_catalog(CAPACITY_TYPES[load])  # fetched and cached before there are several processes
    months = [(load, seed) for seed in seeds for load in loads]
    with ProcessPoolExecutor(WORKERS) as pool:
        running = {(month, rule): pool.submit(_play_load, *month, rule, seconds) for month in months for rule in RULES}
        for load, seed in months:
            trace = load_generator.generate(load, seed=seed, seconds=seconds)
            bound = bound_by_hour(trace, CAPACITY_TYPES[load], seconds)
            by_rule = {rule: running[(load, seed), rule].result() for rule in RULES}
            print(f"{load}, seed {seed}: {_summary(by_rule, bound)}", flush=True)
            yield Month(load=load, seed=seed, outcomes=by_rule, bound=bound)


def _summary(by_rule: Mapping[str, Outcome], bound: Sequence[float]) -> str:
    parts = [
        f"{rule} ${o.dollars:.2f}, {o.moved} moved, p99 {o.wait_p99:.0f} s, {o.nodes:.0f} nodes, "
        f"{o.processor_seconds} s of a processor"
        for rule, o in by_rule.items()
    ]
    return "; ".join([*parts, f"lower bound ${sum(bound):.2f}"])


def save(month: Month) -> None:
    """Save the totals into comparison.json with those of other loads and seeds, without the hours."""
    totals: dict[str, Any] = {"days": len(month.bound) / 24, "lower_bound": round(sum(month.bound), 4)}
    for rule, outcome in month.outcomes.items():
        totals[rule] = {k: v for k, v in asdict(outcome).items() if not k.endswith("_by_hour")}
    saved = _saved()
    saved.setdefault(month.load, {})[str(month.seed)] = totals
    RESULTS.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


def _saved() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def run() -> list[dict[str, str]]:
    """The rows of the saved outcomes, and of all loads together."""
    saved = _saved()
    rows = _total_rows(saved)
    for load, by_seed in saved.items():
        days = ", ".join(sorted({f"{s['days']:g}" for s in by_seed.values()}))
        how = f"{days} days, seed {', '.join(by_seed)}; `python -m bench.month --save --days {days}`"
        rows += [{**row, "measurement": f"{load}: {row['measurement']}", "method": how} for row in _rows(by_seed)]
    return rows


def _total_rows(saved: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """The sums over all loads by seed, of the seeds that all of them have."""
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in saved.values()))) if saved else []
    if not seeds:
        return []

    def ratio(figure: str) -> str:
        return ", ".join([_ratio(figure, [by_seed[seed] for by_seed in saved.values()]) for seed in seeds])

    totals = (("dollars", f"at most {COST_TARGET:.0%}"), ("moved", f"at most {MOVED_TARGET:.0%}"))
    return [
        {
            "measurement": f"all loads together: {'voluntarily moved pods' if figure == 'moved' else figure}, "
            "relative to greedy",
            "target": target,
            "result": ratio(figure),
            "method": f"the sums of the rows below, seed {', '.join(seeds)}",
        }
        for figure, target in totals
    ]


def _ratio(figure: str, months: Sequence[Mapping[str, Any]]) -> str:
    tenon, greedy = (sum(month[rule][figure] for month in months) for rule in ("tenon", "greedy"))
    return f"{tenon / greedy:.1%} ({tenon:,.0f} to {greedy:,.0f})"


def _rows(by_seed: Mapping[str, Any]) -> list[dict[str, str]]:
    pairs = [(s["tenon"], s["greedy"], s["lower_bound"]) for s in by_seed.values()]

    def joined(texts: list[str]) -> str:
        return ", ".join(texts)

    return [
        {
            "measurement": "dollars, relative to greedy",
            "target": f"at most {COST_TARGET:.0%}",
            "result": joined(
                [f"{t['dollars'] / g['dollars']:.1%} (${t['dollars']:.0f} to ${g['dollars']:.0f})" for t, g, _ in pairs]
            ),
        },
        {
            "measurement": "lower bound of the dollars, relative to greedy",
            "target": "-",
            "result": joined([f"{b / g['dollars']:.1%} (${b:.0f})" for _, g, b in pairs]),
        },
        {
            "measurement": "voluntarily moved pods, relative to greedy",
            "target": f"at most {MOVED_TARGET:.0%}",
            "result": joined([f"{t['moved'] / g['moved']:.1%} ({t['moved']} to {g['moved']})" for t, g, _ in pairs]),
        },
        {
            "measurement": f"dollars with ${RESTART_COST} for each moved pod, relative to greedy",
            "target": "-",
            "result": joined([f"{_with_moves(t) / _with_moves(g):.1%}" for t, g, _ in pairs]),
        },
        {
            "measurement": "seconds until a pod has a node, median and 99 %, tenon and greedy",
            "target": "no worse",
            "result": joined([f"{_waits(t)} and {_waits(g)}" for t, g, _ in pairs]),
        },
        {
            "measurement": "nodes on average, tenon and greedy",
            "target": "-",
            "result": joined([f"{t['nodes']:.0f} and {g['nodes']:.0f}" for t, g, _ in pairs]),
        },
    ]


def _with_moves(outcome: Mapping[str, float]) -> float:
    """USD with the price that Tenon puts on a restart."""
    return outcome["dollars"] + RESTART_COST * outcome["moved"]


def _waits(outcome: Mapping[str, float]) -> str:
    return f"{outcome['wait_p50']:.0f}/{outcome['wait_p99']:.0f}"


# --- the command ---


def main(arguments: Sequence[str]) -> int:
    """Play the generated loads or a trace, or write the loads as CSV."""
    options = _parser().parse_args(arguments)
    seconds = round(options.days * DAY)
    try:
        if options.page:
            charts.read(charts.SCRIPT)  # before hours are played
        match options.command:
            case "write":
                return _write(options.folder, options.seeds, seconds)
            case "play":
                return _play_file(options, seconds)
            case _:
                return _play_loads(options, seconds)
    except (load_trace.TraceError, CommandError) as error:
        print(error, file=sys.stderr)
        return 1


def _play_loads(options: argparse.Namespace, seconds: int) -> int:
    months = []
    for month in measure(options.loads, options.seeds, seconds):
        months.append(month)
        if options.save:
            save(month)
        if options.page:
            shown = [html_page.Month(f"{m.load}, seed {m.seed}", m.outcomes, m.bound) for m in months]
            options.page.write_text(html_page.page(shown), encoding="utf-8")
    return 0


def _write(folder: Path, seeds: Sequence[int], seconds: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for load in LOADS:
        for seed in seeds:
            path = folder / f"{load}-{seed}.csv"
            load_trace.write(load_generator.generate(load, seed=seed, seconds=seconds), path)
            print(path)
    return 0


def _play_file(options: argparse.Namespace, seconds: int) -> int:
    trace = load_trace.read(options.file)
    for problem in trace.problems:
        print(problem, file=sys.stderr)
    window = trace.window(options.start, seconds)
    if not window.pods:
        raise load_trace.TraceError(f"{options.file}: no pod exists in these {options.days:g} days")
    capacity_types = tuple(options.capacity_types)
    by_rule = {
        rule: play(window, rule, capacity_types=capacity_types, seed=options.seeds[0], seconds=seconds)
        for rule in RULES
    }
    bound = bound_by_hour(window, capacity_types, seconds)
    print(_summary(by_rule, bound))
    if options.page:
        options.page.write_text(html_page.page([html_page.Month(options.file.name, by_rule, bound)]), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--days", type=float, default=DAYS, help="how many days are played")
    common.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    common.add_argument("--page", type=Path, metavar="FILE", help="write an HTML page with charts")
    parser = argparse.ArgumentParser(prog="python -m bench.month", description=__doc__, parents=[common])
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--save", action="store_true", help="save the outcomes into bench/month/comparison.json")
    commands = parser.add_subparsers(dest="command", metavar="write | play")
    writing = commands.add_parser("write", parents=[common], help="write the generated loads as CSV")
    writing.add_argument("folder", type=Path)
    playing = commands.add_parser("play", parents=[common], help="play a trace")
    playing.add_argument("file", type=Path)
    playing.add_argument("--start", type=int, default=0, metavar="SECONDS", help="where in the trace the days begin")
    playing.add_argument("--capacity-types", nargs="+", choices=_SPOT, default=list(_SPOT))
    return parser
