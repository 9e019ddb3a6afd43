"""The main job: how long from a pending pod to a claim and to a running pod, and from an empty node to its end."""

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
    """The demo's figures over some seeds, as median and range."""
    runs = [_demo(seed) for seed in range(SEEDS)]
    how = f"the demo with {SEEDS} seeds; cluster time"
    return [
        _row("pending pod to claim", "seconds", [r.seconds_pending_to_claim for r in runs], how),
        _row("pending pod to running", "seconds", [r.seconds_pending_to_running for r in runs], how),
        _row("empty node to terminated", "30-60 s", [r.seconds_empty_to_terminated for r in runs], how),
        _row("CreateFleet calls", "1-2", [float(r.create_fleet_calls) for r in runs], f"the demo with {SEEDS} seeds"),
        _row("real time of a run", "under 30 s", [r.wall_seconds for r in runs], "the same, one process"),
    ]


def _demo(seed: int) -> DemoResult:
    console = Console(quiet=True)
    return Demo(DemoRequest(seed=seed, quiet=True), console).run()


def _row(figure: str, asked: str, values: list[float | None], how: str) -> dict[str, str]:
    known = [v for v in values if v is not None]
    measured = f"{statistics.median(known):.1f} ({min(known):.1f}-{max(known):.1f})"
    return {"figure": figure, "asked": asked, "measured": measured, "how": how}
