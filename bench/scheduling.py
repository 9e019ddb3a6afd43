"""What scheduling costs and saves: the scenarios against Karpenter's own answers, and sizes up to 20,000 pods.

Seconds are of the decision alone, with a warm catalog: decoding and printing are left out, as they are of Karpenter's
figures. Prices are what a decision's claims cost at their cheapest, USD per hour.
"""

from __future__ import annotations

import json
import math
import os
import resource
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cli import simulate
from shared.scheduling.schedule import schedule

FOLDER = Path(os.environ.get("TENON_SCENARIOS", Path(__file__).parents[2] / "shared" / "scenarios"))
_LARGE = 1000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; ratios are ours to Karpenter's, ``bound`` to the linear relaxation. None where there is none."""

    name: str
    pods: int
    claims: int
    errors: int
    price: float
    price_ratio: float | None
    bound_ratio: float | None
    seconds: float
    seconds_ratio: float | None
    peak_mb: float


KARPENTER_SECONDS = {"230-benchmark-1000": 1.5, "232-benchmark-5000": 10.0, "234-benchmark-20000": 32.0}
"""What Karpenter needs for its own benchmark's mix on two cores; of a range, the least."""
_SHARES = {"230-benchmark-1000": 10, "232-benchmark-5000": 30, "234-benchmark-20000": 50}


def run() -> list[dict[str, str]]:
    """The figures of all scenarios together, and of Karpenter's own benchmark's mix."""
    rows = measure()
    how = f"{len(rows)} scenarios, one decision each, warm"
    figures = []
    for row in rows:
        if row.name in KARPENTER_SECONDS:
            most = KARPENTER_SECONDS[row.name] / _SHARES[row.name]
            figures.append(
                {
                    "figure": f"benchmark mix, {row.pods:,} pods",
                    "asked": f"under {most:.2f} s, 500 MB",
                    "measured": f"{row.seconds:.2f} s, {row.peak_mb:.0f} MB, ${row.price:.2f}/h",
                    "how": "the decision alone",
                }
            )
    dearer = [r.name for r in rows if r.price_ratio is not None and r.price_ratio > 1 + _EQUAL]
    figures.append(
        {
            "figure": "price to Karpenter's median, geometric mean",
            "asked": "at most 0.93",
            "measured": f"{geometric_mean(rows):.3f}",
            "how": how,
        }
    )
    figures.append(
        {
            "figure": "scenarios dearer than Karpenter's median",
            "asked": "none",
            "measured": ", ".join(dearer) or "none",
            "how": how,
        }
    )
    return figures


def measure(*, only_large: bool = False) -> list[Row]:
    """Measures every scenario there is, in order of name; none if the scenarios are not there."""
    index = FOLDER / "index.json"
    if not index.exists():
        return []
    rows = json.loads(index.read_text(encoding="utf-8"))
    return [_measure(r) for r in rows if not only_large or r["pendingPods"] >= _LARGE]


_EQUAL = 1e-9


def _measure(row: dict[str, Any]) -> Row:
    asked = simulate.question(_document(row), now=datetime(2026, 1, 1, tzinfo=UTC))
    schedule(asked.problem)
    started = time.perf_counter()
    decision = schedule(asked.problem)
    seconds = time.perf_counter() - started
    price = sum(c.cheapest.price for c in decision.claims)
    golden = row["golden"]
    return Row(
        name=row["name"],
        pods=row["pendingPods"],
        claims=len(decision.claims),
        errors=len(decision.errors) + len(asked.refused),
        price=price,
        price_ratio=_ratio(price, golden["price"][1]),
        bound_ratio=_ratio(price, golden.get("lower_bound")),
        seconds=seconds,
        seconds_ratio=_ratio(seconds, golden.get("solve_seconds_min")),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _document(row: dict[str, Any]) -> simulate.Document:
    scenario, catalog = FOLDER / f"{row['name']}.json.gz", FOLDER / "catalogs" / f"{row['catalog']}.json.gz"
    return simulate.read([scenario, catalog])


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
