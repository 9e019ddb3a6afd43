"""``make test-karpenter``: run Karpenter's own suites against Tenon on a real control plane, and write their page.

Specs wait most of the time, so several clusters run them at once. ``--focus`` and ``--skip`` run some specs and leave
the page as it is. ``--reports`` writes the page from the reports of earlier runs, of which the last counts for each
spec. Every run leaves folders in build/karpenter with the suite's output, Ginkgo's report and a log of the world.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from local.real.binary import kubernetes_version
from local.real.go_build import CHECKOUT, go
from tests.karpenter import report, suites

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = CHECKOUT / "docs" / "karpenter-suite.md"
_RUNS = CHECKOUT / "build" / "karpenter"
_INTERRUPTED = "interrupted"


def main() -> int:
    """Run what the command line says. Returns the exit status: 1 if a spec failed without a reason."""
    options = _options()
    if not go():
        print("Karpenter's suites are built by Go, which is not installed", file=sys.stderr)
        return 2
    reasons = yaml.safe_load((suites.FOLDER / "reasons.yaml").read_text()) or {}
    if options.reports:
        results = {suite: _of_earlier_runs(suite, options.reports) for suite in suites.SUITES}
        run = f"Put together from {len(options.reports)} runs of `make test-karpenter`, each of some specs, {_here()}"
        PAGE.write_text(report.page(results, reasons, version=suites.version(), run=run))
        return _verdict(results, reasons, is_whole=True)
    is_whole = not (options.focus or options.skip or options.suite)
    results = {}
    for suite in suites.SUITES:
        if options.suite in (None, suite):
            clusters = 1 if suite == suites.MEASURING else options.clusters
            results[suite] = _run(suite, focus=options.focus, skip=options.skip, clusters=clusters)
    if is_whole:
        run = f"`make test-karpenter`, {_here()}"
        PAGE.write_text(report.page(results, reasons, version=suites.version(), run=run))
    return _verdict(results, reasons, is_whole=is_whole)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-karpenter", description=__doc__)
    parser.add_argument("--suite", choices=suites.SUITES, help="one suite only")
    parser.add_argument("--focus", default="", help="only specs whose name matches this regular expression")
    parser.add_argument("--skip", default="", help="no specs whose name matches this regular expression")
    parser.add_argument("--clusters", type=int, default=3, help="how many clusters run specs at once")
    parser.add_argument("--reports", nargs="+", type=Path, help="folders of earlier runs: write the page from them")
    return parser.parse_args()


def _run(suite: str, *, focus: str, skip: str, clusters: int) -> list[report.Spec]:
    folder = _RUNS / f"{suite}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = suites.listed(suite, folder / "list", focus=focus, skip=skip)
    print(f"{suite}: running {len(names)} specs; {folder.relative_to(CHECKOUT)} has their logs", flush=True)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(suites.container(name), []).append(name)
    portions = [group[i::clusters] for group in groups.values() for i in range(min(clusters, len(group)))]
    # A process has one local AWS.
    with ProcessPoolExecutor(clusters, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = [
            pool.submit(suites.run, suite, folder / f"cluster-{i}", portion) for i, portion in enumerate(portions)
        ]
        outcomes = [future.result() for future in futures]
    invocations, failures = sum(o.invocations for o in outcomes), [text for o in outcomes for text in o.failures]
    print(f"{suite}: {invocations} invocations of Tenon's functions, {len(failures)} failed")
    for text in [*failures, *(f"denied: {text}" for outcome in outcomes for text in outcome.denied)]:
        print(text.partition("\n")[0])
    return _complete(names, [outcome.report for outcome in outcomes])


def _complete(names: list[str], reports: Iterable[Path]) -> list[report.Spec]:
    """The specs of these names in the reports; those that no report has finished are "not run"."""
    finished = ([spec for spec in report.read(path) if spec.state != _INTERRUPTED] for path in reports if path.exists())
    specs = {spec.name: spec for spec in report.merged(finished)}
    return [specs.get(name) or report.Spec(name=name, state="not run") for name in names]


def _of_earlier_runs(suite: str, folders: list[Path]) -> list[report.Spec]:
    """The results of a suite's specs in these folders of runs, of which the last counts for each spec."""
    runs = sorted((folder for folder in folders if folder.name.startswith(f"{suite}-")), key=lambda f: f.name)
    names = suites.listed(suite, _RUNS / "list")
    return _complete(names, [path for folder in runs for path in _reports(folder)])


def _reports(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(suites.REPORT) if path.parent.name != "list")


def _here() -> str:
    """The date and the machine."""
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Kubernetes {kubernetes_version()}, {os.cpu_count()} cores "
        f"({platform.machine()}), "
        f"Python {platform.python_version()}."
    )


def _verdict(results: dict[str, list[report.Spec]], reasons: dict[str, str], *, is_whole: bool) -> int:
    specs = [spec for suite in results.values() for spec in suite]
    for suite, of_suite in results.items():
        print(f"{suite}: {sum(spec.passed for spec in of_suite)} of {len(of_suite)} specs passed")
    unexplained = report.unexplained(specs, reasons)
    for spec in unexplained:
        print(f"{spec.state} without a reason: {spec.name}\n    {spec.message[:500]}")
    outdated = report.outdated(specs, reasons) if is_whole else []
    for name in outdated:
        print(f"has a reason, but no spec of it failed: {name}")
    return 1 if unexplained or outdated or not specs else 0


if __name__ == "__main__":
    sys.exit(main())
