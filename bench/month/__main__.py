"""``python -m bench.month`` simulates three loads with three seeds each, under Tenon's decisions and Karpenter's rules.

``--save`` saves into results.json what bench/RESULTS.md reports, ``--page FILE`` writes a page with charts. ``write
DIR`` writes the loads as CSV, ``replay FILE`` simulates one such file, or another trace with these columns
(:mod:`bench.month.load_trace`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.month import comparison, html_page, load_generator, load_trace, results
from bench.month.load_generator import DAY, LOADS
from cli.errors import CommandError
from cli.report import charts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.month.comparison import Month

SEEDS = (1, 2, 3)
DAYS = 30
_CAPACITY_TYPES = ("spot", "on-demand")


def main(arguments: Sequence[str]) -> int:
    """Simulate the generated loads or a trace, or write the loads as CSV."""
    options = _parser().parse_args(arguments)
    seconds = round(options.days * DAY)
    try:
        if options.page:
            charts.read(charts.SCRIPT)  # before hours are simulated
        match options.command:
            case "write":
                _write(options.folder, options.seeds, seconds)
            case "replay":
                _replay(options, seconds)
            case _:
                _simulate_loads(options, seconds)
    except (load_trace.TraceError, CommandError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _simulate_loads(options: argparse.Namespace, seconds: int) -> None:
    months: dict[str, Month] = {}
    for month in comparison.measure(options.loads, options.seeds, seconds):
        title = f"{month.load}, seed {month.seed}"
        months[title] = month
        print(f"{title}: {_summary(month)}", flush=True)
        if options.save:
            results.save(month)
        _write_page(options.page, months)


def _write(folder: Path, seeds: Sequence[int], seconds: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for load in LOADS:
        for seed in seeds:
            path = folder / f"{load}-{seed}.csv"
            load_trace.write(load_generator.generate(load, seed=seed, seconds=seconds), path)
            print(path)


def _replay(options: argparse.Namespace, seconds: int) -> None:
    trace = load_trace.read(options.file)
    for problem in trace.problems:
        print(problem, file=sys.stderr)
    window = trace.window(options.start, seconds)
    if not window.pods:
        raise load_trace.TraceError(f"{options.file}: no pod exists in these {options.days:g} days")
    name, capacity_types = options.file.name, tuple(options.capacity_types)
    month = comparison.replay(window, capacity_types=capacity_types, seed=options.seeds[0], seconds=seconds, name=name)
    print(_summary(month))
    _write_page(options.page, {name: month})


def _summary(month: Month) -> str:
    parts = [
        f"{rules} ${o.dollars:.2f}, {o.moved} moved, p99 {o.wait_p99:.0f} s, {o.nodes:.0f} nodes, "
        f"{o.processor_seconds} s of a processor"
        for rules, o in month.outcomes.items()
    ]
    return "; ".join([*parts, f"lower bound ${sum(month.bound):.2f}"])


def _write_page(path: Path | None, months: Mapping[str, Month]) -> None:
    if path is not None:
        path.write_text(html_page.page(months), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--days", type=float, default=DAYS, help="how many days are simulated")
    common.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    common.add_argument("--page", type=Path, metavar="FILE", help="write an HTML page with charts")
    parser = argparse.ArgumentParser(prog="python -m bench.month", description=__doc__, parents=[common])
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--save", action="store_true", help="save the outcomes into bench/month/results.json")
    commands = parser.add_subparsers(dest="command", metavar="write | replay")
    write = commands.add_parser("write", parents=[common], help="write the generated loads as CSV")
    write.add_argument("folder", type=Path)
    replay = commands.add_parser("replay", parents=[common], help="simulate a trace")
    replay.add_argument("file", type=Path)
    replay.add_argument("--start", type=int, default=0, metavar="SECONDS", help="where in the trace the days begin")
    replay.add_argument("--capacity-types", nargs="+", choices=_CAPACITY_TYPES, default=list(_CAPACITY_TYPES))
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
