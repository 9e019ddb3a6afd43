"""``make test-karpenter``: run Karpenter's own suites against Tenon on a real control plane, and write their page.

``--focus`` and ``--skip`` run some specs and leave the page as it is. ``--reports`` writes the page from the reports of
earlier runs, of which the last counts for each spec. Every run leaves a folder in build/karpenter with the suite's
output, Ginkgo's report and a log of the world.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import yaml

from local.real.go_build import CHECKOUT, go
from tests.karpenter import report, suites

PAGE = CHECKOUT / "docs" / "karpenter-suite.md"
_RUNS = CHECKOUT / "build" / "karpenter"
_BASIC = "Basic Deployment"
"""The spec of the performance suite that runs by default; the others are for larger machines."""


def main() -> int:
    """Run what the command line says. Returns the exit status: 1 if a spec failed without a reason."""
    options = _options()
    if not go():
        print("Karpenter's suites are built by Go, which is not installed", file=sys.stderr)
        return 2
    reasons = yaml.safe_load((suites.FOLDER / "reasons.yaml").read_text()) or {}
    if options.reports:
        results = {suite: _merged(suite, options.reports) for suite in suites.SUITES}
        PAGE.write_text(_page(results, reasons))
        return _verdict(results, reasons, is_whole=True)
    is_whole = not (options.focus or options.skip or options.suite)
    wanted = {suite: options.focus for suite in suites.SUITES if options.suite in (None, suite)}
    if "performance" in wanted and not options.focus:
        wanted["performance"] = _BASIC
    results = {suite: _run(suite, focus=focus, skip=options.skip) for suite, focus in wanted.items()}
    if is_whole:
        PAGE.write_text(_page(results, reasons))
    return _verdict(results, reasons, is_whole=is_whole)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-karpenter", description=__doc__)
    parser.add_argument("--suite", choices=suites.SUITES, help="one suite only")
    parser.add_argument("--focus", default="", help="only specs whose name matches this regular expression")
    parser.add_argument("--skip", default="", help="no specs whose name matches this regular expression")
    parser.add_argument("--reports", nargs="+", type=Path, help="folders of earlier runs: write the page from them")
    return parser.parse_args()


def _run(suite: str, *, focus: str, skip: str) -> list[report.Spec]:
    folder = _RUNS / f"{suite}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    flags = [f"{name}={value}" for name, value in (("focus", focus), ("skip", skip)) if value]
    print(f"{suite}: running; {folder.relative_to(CHECKOUT)} has its logs", flush=True)
    outcome = suites.run(suite, folder, flags=flags)
    print(f"{suite}: {outcome.invocations} invocations of Tenon's functions, {len(outcome.failures)} failed")
    for failure in outcome.failures:
        print(failure)
    return report.read(outcome.report)


def _merged(suite: str, folders: list[Path]) -> list[report.Spec]:
    return report.merged(report.read(f / suites.REPORT) for f in sorted(folders) if f.name.startswith(f"{suite}-"))


def _page(results: dict[str, list[report.Spec]], reasons: dict[str, str]) -> str:
    run = (
        f"`make test-karpenter`, {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), "
        f"Python {platform.python_version()}."
    )
    return report.page(results, reasons, version=suites.version(), run=run)


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
