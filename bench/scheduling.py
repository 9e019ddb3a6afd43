"""What scheduling costs and saves: made-up mixes up to 20,000 pods, and the scenarios against Karpenter's own answers.

Times are of the decision alone, with a warm catalog: decoding and printing are left out, as they are of Karpenter's
figures. Processor time is what is compared; wall time, beside it, depends on what else the machine does. Prices are
what a decision's claims cost at their cheapest, USD per hour.
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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli.simulate import input_files
from shared.scheduling.scheduler import schedule

FOLDER = Path(os.environ.get("TENON_SCENARIOS", Path(__file__).parents[1] / "tests" / "scenarios" / "data"))
_LARGE = 1000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; ratios are ours to Karpenter's (median and lowest), ``bound`` to the linear relaxation."""

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
    "mix-100": ("mix, 100 pods x 400 types", None),
    "mix-1000": ("mix, 1,000 pods x 400 types", 1.5 / 10),
    "mix-5000": ("mix, 5,000 pods x 400 types", 10 / 30),
    "mix-20000": ("mix, 20,000 pods x 400 types", 32 / 50),
    "bulk": ("50 Deployments x 400 replicas, 800 types", None),
    "nodes": ("mix, 20,000 pods, 2,000 nodes there", None),
    "preferred": ("4,000 pods, preferred anti-affinity", 2.0),
}
"""What is asked in seconds: Karpenter's own on two cores (1.5, 10, the least of 32-90) by a tenth, 30th and 50th."""
_MEGABYTES = 500
_FRESH = 5
_IMPORT = """
import time
began = time.perf_counter(), time.process_time()
import shared.scheduling.scheduler
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""


def run() -> list[dict[str, str]]:
    """The mixes, each in a process of its own; the core's import; and all scenarios against Karpenter's answers."""
    return [*(_mix(name) for name in _ROWS), _imported(), *_scenarios()]


def _mix(name: str) -> dict[str, str]:
    title, seconds = _ROWS[name]
    found = json.loads(_fresh("-m", "bench.pod_mixes", name))
    asked = "-" if seconds is None else f"under {seconds * 1000:.0f} ms"
    limit = f", {_MEGABYTES} MB" if found["pods"] > _LARGE else ""
    bound = f", {found['price'] / found['bound']:.2f} of the bound" if found["bound"] else ""
    there = f"{found['placed']:.0f} pods on nodes there, " if found["placed"] else ""
    refused = f", {found['errors']:.0f} refused" if found["errors"] else ""
    return {
        "figure": title,
        "asked": f"{asked}{limit}".lstrip("-, ") or "-",
        "measured": (
            f"{found['processor'] * 1000:.1f} ms ({found['wall'] * 1000:.0f} wall), "
            f"{found['pods'] / found['processor']:,.0f} pods/s, {found['peak']:.0f} MB; {there}"
            f"{found['nodes']:.0f} new nodes, ${found['price']:.2f}/h{bound}{refused}"
        ),
        "how": "own process, warm catalog, quickest of 3; processor time counts; bound: LP over summed requests",
    }


def _imported() -> dict[str, str]:
    runs = sorted([float(x) for x in _fresh("-c", _IMPORT).split()] for _ in range(_FRESH))
    wall, processor = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
    return {
        "figure": "import of the core",
        "asked": "under 150 ms",
        "measured": f"{processor * 1000:.0f} ms ({wall * 1000:.0f} wall)",
        "how": f"median of {_FRESH} fresh interpreters, processor time",
    }


def _fresh(*arguments: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    return done.stdout


def _scenarios() -> list[dict[str, str]]:
    rows = measure()
    if not rows:
        return []
    how = f"{len(rows)} scenarios, one decision each"
    dearer = [r.name for r in rows if r.lowest_ratio is not None and r.lowest_ratio > 1 + _EQUAL]
    return [
        {
            "figure": "price to Karpenter's median, geometric mean",
            "asked": "at most 0.93",
            "measured": f"{geometric_mean(rows):.3f}",
            "how": how,
        },
        {
            "figure": "scenarios dearer than Karpenter's lowest",
            "asked": "none",
            "measured": ", ".join(dearer) or "none",
            "how": f"{how}; 110 places three pods where Karpenter refuses two",
        },
    ]


def measure(*, only_large: bool = False) -> list[Row]:
    """Measures every scenario there is, in order of name; none if the scenarios are not there."""
    index = FOLDER / "index.json"
    if not index.exists():
        return []
    rows = json.loads(index.read_text(encoding="utf-8"))
    return [_measure(r) for r in rows if not only_large or r["pendingPods"] >= _LARGE]


_EQUAL = 1e-9


def _measure(row: dict[str, Any]) -> Row:
    asked = input_files.simulation_input(_document(row), now=datetime(2026, 1, 1, tzinfo=UTC))
    schedule(asked.problem)
    started = time.perf_counter()
    decision = schedule(asked.problem)
    seconds = time.perf_counter() - started
    price = sum(c.cheapest.price for c in decision.new_node_claims)
    golden = row["golden"]
    return Row(
        name=row["name"],
        pods=row["pendingPods"],
        claims=len(decision.new_node_claims),
        errors=len(decision.pod_errors) + len(asked.refused),
        price=price,
        price_ratio=_ratio(price, golden["price"][1]),
        lowest_ratio=_ratio(price, golden["price"][0]),
        bound_ratio=_ratio(price, golden.get("lower_bound")),
        seconds=seconds,
        seconds_ratio=_ratio(seconds, golden.get("solve_seconds_min")),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _document(row: dict[str, Any]) -> input_files.Document:
    scenario, catalog = FOLDER / f"{row['name']}.json.gz", FOLDER / "catalogs" / f"{row['catalog']}.json.gz"
    return input_files.read([scenario, catalog])


def _ratio(ours: float, theirs: float | None) -> float | None:
    return ours / theirs if theirs else None


def geometric_mean(rows: list[Row]) -> float:
    """Of the price ratios, over the scenarios in which anything was bought."""
    logs = [math.log(r.price_ratio) for r in rows if r.price_ratio]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def table(rows: list[Row]) -> list[str]:
    """The rows as a Markdown table."""
    lines = [
        "| scenario | pods | claims | errors | USD/h | to Karpenter | to bound | seconds | to Karpenter | peak MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r.name} | {r.pods} | {r.claims} | {r.errors} | {r.price:.3f} | {_shown(r.price_ratio)} | "
        f"{_shown(r.bound_ratio)} | {r.seconds:.3f} | {_shown(r.seconds_ratio)} | {r.peak_mb:.0f} |"
        for r in rows
    ]
    return lines


def _shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


if __name__ == "__main__":
    measured = measure()
    print("\n".join(table(measured)))
    print(f"\ngeometric mean of prices to Karpenter's median: {geometric_mean(measured):.3f}")
