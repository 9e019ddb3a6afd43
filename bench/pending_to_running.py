"""How long from a pending pod to a NodeClaim and to a running pod, and from an empty node to its termination."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.console import Console

from cli.demo.request import DemoRequest
from cli.demo.runner import Demo

if TYPE_CHECKING:
    from cli.demo.results import DemoResult

SEEDS = 5


def run() -> list[dict[str, str]]:
    """The demo's results for several seeds, as median and range."""
    runs = [_demo(seed) for seed in range(SEEDS)]
    method = f"the demo with {SEEDS} seeds; cluster time"
    return [
        _row("pending pod to NodeClaim", "seconds", [r.seconds_pending_to_claim for r in runs], method),
        _row("pending pod to running", "seconds", [r.seconds_pending_to_running for r in runs], method),
        _row("empty node to terminated", "30-60 s", [r.seconds_empty_to_terminated for r in runs], method),
        _row("CreateFleet calls", "1-2", [float(r.create_fleet_calls) for r in runs], f"the demo with {SEEDS} seeds"),
        _row("duration of a run", "under 30 s", [r.wall_seconds for r in runs], "real time in one process"),
    ]


def _demo(seed: int) -> DemoResult:
    console = Console(quiet=True)
    return Demo(DemoRequest(seed=seed, quiet=True), console).run()


def _row(measurement: str, target: str, values: list[float | None], method: str) -> dict[str, str]:
    seconds = [v for v in values if v is not None]
    result = f"{statistics.median(seconds):.1f} ({min(seconds):.1f}-{max(seconds):.1f})"
    return {"measurement": measurement, "target": target, "result": result, "method": method}
