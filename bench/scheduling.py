"""Scheduling: generated pods, up to 20,000 of them, and the recorded scenarios against Karpenter's results.

Times are those of the decision with a warm catalog, without decoding and printing, as in Karpenter's results. Processor
time is compared; wall time also depends on other load. Prices are those of the cheapest offerings of a decision's
NodeClaims, USD per hour.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import problem_files
from shared.base.struct import Struct
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.scheduling.decision import Problem

FOLDER = Path(os.environ.get("TENON_SCENARIOS", Path(__file__).parents[1] / "tests" / "scenarios" / "data"))
_LARGE = 1000


class Row(Struct, kw_only=True):
    """One scenario; ratios are to Karpenter's median and lowest price, and to the bound of the linear relaxation."""

    name: str
    pods: int
    claims: int
    errors: int
    price: float
    price_ratio: float | None
    lowest_ratio: float | None
    bound_ratio: float | None
    seconds: float
    seconds_ratio: float | None
    peak_mb: float


_ROWS = {
    "mix-1": ("mix, 1 pod x 400 types", 0.005),
    "mix-100": ("mix, 100 pods x 400 types", 0.1),
    "mix-1000": ("mix, 1,000 pods x 400 types", 1.5 / 10),
    "mix-5000": ("mix, 5,000 pods x 400 types", 10 / 30),
    "mix-20000": ("mix, 20,000 pods x 400 types", 32 / 50),
    "bulk": ("50 Deployments x 400 replicas, 800 types", None),
    "nodes": ("mix, 20,000 pods, 2,000 existing nodes", None),
    "node-1": ("1 pod, 2,000 existing nodes", 0.05),
    "spread": ("100 pods, spread over zones and capacity types", 0.15),
    "preferred": ("4,000 pods, preferred anti-affinity", 2.0),
}
"""Title and target in seconds. Targets are Karpenter's times on two cores (1.5, 10, the least of 32-90) divided by 10,
30 and 50."""
_MEGABYTES = 500
_INTERPRETERS = 5
_IMPORT = """
import time
began = time.perf_counter(), time.process_time()
import shared.scheduling.scheduler
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""


def run() -> list[dict[str, str]]:
    """The generated mixes, each in its own process; the import time; and all scenarios against Karpenter's results."""
    return [*(_mix(name) for name in _ROWS), _import_time(), *_scenarios()]


def _mix(name: str) -> dict[str, str]:
    title, seconds = _ROWS[name]
    result = json.loads(_run_python("-m", "bench.pod_mixes", name))
    target = "-" if seconds is None else f"under {seconds * 1000:.0f} ms"
    limit = f", {_MEGABYTES} MB" if result["pods"] > _LARGE else ""
    bound = f", {result['price'] / result['bound']:.2f} of the bound" if result["bound"] else ""
    existing = f"{result['placed']:.0f} pods on existing nodes, " if result["placed"] else ""
    refused = f", {result['errors']:.0f} refused" if result["errors"] else ""
    return {
        "measurement": title,
        "target": f"{target}{limit}".lstrip("-, ") or "-",
        "result": (
            f"{result['processor'] * 1000:.1f} ms ({result['wall'] * 1000:.0f} wall), "
            f"{result['pods'] / result['processor']:,.0f} pods/s, {result['peak']:.0f} MB; {existing}"
            f"{result['nodes']:.0f} new nodes, ${result['price']:.2f}/h{bound}{refused}"
        ),
        "method": "own process, warm catalog, fastest of 3; processor time; bound: LP over summed requests",
    }


def _import_time() -> dict[str, str]:
    runs = sorted([float(x) for x in _run_python("-c", _IMPORT).split()] for _ in range(_INTERPRETERS))
    wall, processor = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
    return {
        "measurement": "import of the scheduler",
        "target": "under 150 ms",
        "result": f"{processor * 1000:.0f} ms ({wall * 1000:.0f} wall)",
        "method": f"median of {_INTERPRETERS} new interpreters, processor time",
    }


def _run_python(*arguments: str) -> str:
    """The output of a new interpreter."""
    process = subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    return process.stdout


def _scenarios() -> list[dict[str, str]]:
    rows = measure()
    if not rows:
        return []
    method = f"{len(rows)} scenarios, one decision each"
    more_expensive = [r.name for r in rows if r.lowest_ratio is not None and r.lowest_ratio > 1 + _EQUAL]
    return [
        {
            "measurement": "price relative to Karpenter's median, geometric mean",
            "target": "at most 0.93",
            "result": f"{geometric_mean(rows):.3f}",
            "method": method,
        },
        {
            "measurement": "scenarios with a higher price than Karpenter's lowest",
            "target": "none",
            "result": ", ".join(more_expensive) or "none",
            "method": f"{method}; in 110 three pods are scheduled of which Karpenter refuses two",
        },
    ]


def measure() -> list[Row]:
    """Measure all scenarios, by name; none if the files don't exist."""
    return [_measure(r) for r in _index()]


def problems() -> Iterator[tuple[str, Problem]]:
    """The scenarios' names and scheduling problems."""
    for row in _index():
        yield row["name"], _simulation(row).problem


def _index() -> list[dict[str, Any]]:
    """A row for each scenario; none if the files don't exist."""
    index = FOLDER / "index.json"
    return json.loads(index.read_text(encoding="utf-8")) if index.exists() else []


_EQUAL = 1e-9


def _measure(row: dict[str, Any]) -> Row:
    simulation = _simulation(row)
    schedule(simulation.problem)
    started = time.perf_counter()
    decision = schedule(simulation.problem)
    seconds = time.perf_counter() - started
    price = sum(c.cheapest.price for c in decision.new_node_claims)
    karpenter = row["golden"]
    return Row(
        name=row["name"],
        pods=row["pendingPods"],
        claims=len(decision.new_node_claims),
        errors=len(decision.pod_errors) + len(simulation.refused),
        price=price,
        price_ratio=_ratio(price, karpenter["price"][1]),
        lowest_ratio=_ratio(price, karpenter["price"][0]),
        bound_ratio=_ratio(price, karpenter.get("lower_bound")),
        seconds=seconds,
        seconds_ratio=_ratio(seconds, karpenter.get("solve_seconds_min")),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _simulation(row: dict[str, Any]) -> problem_files.SimulationInput:
    scenario, catalog = FOLDER / f"{row['name']}.json.gz", FOLDER / "catalogs" / f"{row['catalog']}.json.gz"
    return problem_files.simulation_input(problem_files.read([scenario, catalog]), now=datetime(2026, 1, 1, tzinfo=UTC))


def _ratio(price: float, reference: float | None) -> float | None:
    return price / reference if reference else None


def geometric_mean(rows: list[Row]) -> float:
    """The geometric mean of the price ratios, for scenarios with new nodes."""
    logs = [math.log(r.price_ratio) for r in rows if r.price_ratio]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def table(rows: list[Row]) -> list[str]:
    """The rows as a Markdown table."""
    lines = [
        "| scenario | pods | claims | errors | USD/h | to Karpenter | to bound | seconds | to Karpenter | peak MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r.name} | {r.pods} | {r.claims} | {r.errors} | {r.price:.3f} | {_format(r.price_ratio)} | "
        f"{_format(r.bound_ratio)} | {r.seconds:.3f} | {_format(r.seconds_ratio)} | {r.peak_mb:.0f} |"
        for r in rows
    ]
    return lines


def _format(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


if __name__ == "__main__":
    measured = measure()
    print("\n".join(table(measured)))
    print(f"\ngeometric mean of prices to Karpenter's median: {geometric_mean(measured):.3f}")
