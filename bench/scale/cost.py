"""The monthly cost of large clusters, by the cost model (bench/cost_model.py), from measured invocations.

Each of the four functions is invoked 60 times an hour. What doesn't grow with the cluster (the catalog function, the
queues, the alarms) is as measured with a hundred nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import cost_model, office_hours
from bench import list_prices as prices
from bench.cost_model import AWS_SECONDS, FULL_VCPU, KUBERNETES_SECONDS, BillItem, Month
from bench.scale.invocations import BUSY, FIRST, FUNCTIONS, IDLE
from bench.stub_minutes import BEFORE_TIMEOUT, BOOKMARK_TICK, REPORT_MINUTES
from infra import function_sizes
from shared.cluster.watched_objects import BOOKMARK_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGETS = {5_000: 40, 15_000: 110}
"""USD a month, by nodes."""
BOOKMARK_SECONDS = BOOKMARK_TIMEOUT - BEFORE_TIMEOUT + BOOKMARK_TICK / 2
"""The mean wait for a watch's bookmark."""
_OF_SIZE = ("seconds", "invocations", "kubernetes", "aws", "waited", "log bytes")
_HUNDRED = cost_model.NODES
_PHASE = {IDLE: "night", BUSY: "day"}
"""The phases in which a hundred nodes were measured."""


def billed_seconds(function: str, figures: Mapping[str, Any], nodes: int) -> float:
    """What Lambda charges an invocation for: processor time at the function's size, and waiting by the model."""
    share = min(1.0, function_sizes.memory(function, nodes) / FULL_VCPU)
    counts = _counts(function, figures, nodes)
    fleets = figures["calls"].get("ec2 CreateFleet", 0.0)
    seconds: float = (
        counts[f"{function} seconds"] / share
        + counts[f"{function} kubernetes"] * KUBERNETES_SECONDS
        + counts[f"{function} aws"] * AWS_SECONDS
        + counts[f"{function} waited"]
        + fleets * cost_model.FLEET_SECONDS
    )
    return seconds


def bill(by_function: Mapping[str, Mapping[str, Any]], nodes: int, load: Mapping[str, str]) -> list[BillItem]:
    """The bill of a month whose phases (``cost_model.PHASE_HOURS``) are idle or busy as ``load`` says."""
    counts = {phase: _minute(by_function, nodes, kind) for phase, kind in load.items()}
    return [*Month({nodes: counts}, nodes).lines(), _first_invocations(by_function, nodes)]


def totals(by_function: Mapping[str, Mapping[str, Any]], nodes: int) -> dict[str, float]:
    """USD a month: idle, in office hours, and busy around the clock."""
    phases = tuple(cost_model.PHASE_HOURS)
    office = {phase: IDLE if phase == "night" else BUSY for phase in phases}
    loads = {"idle": dict.fromkeys(phases, IDLE), "office hours": office, "busy": dict.fromkeys(phases, BUSY)}
    return {name: sum(item.usd for item in bill(by_function, nodes, load)) for name, load in loads.items()}


def _minute(by_function: Mapping[str, Mapping[str, Any]], nodes: int, kind: str) -> dict[str, float]:
    """The counts of a minute, as in bench/office_hours.py."""
    counts = _small(kind)
    for function in FUNCTIONS:
        figures = by_function[function][kind]
        counts |= _counts(function, figures, nodes)
        for call, times in figures["calls"].items():
            counts[f"call {call}"] = counts.get(f"call {call}", 0.0) + times
    return {"minutes": 1.0, **counts}


def _small(kind: str) -> dict[str, float]:
    """The counts of a minute that don't depend on the functions that are measured here."""
    phase = office_hours.saved_results()[_HUNDRED][_PHASE[kind]]
    remaining = [name for name in cost_model.MEASURED if name not in FUNCTIONS]
    kept = {
        "scheduled",
        "sent",
        "events",
        "call s3 PutObject",
        *(f"{name} {of}" for name in remaining for of in _OF_SIZE),
    }
    return {name: count / phase["minutes"] for name, count in phase.items() if name in kept}


def _counts(function: str, figures: Mapping[str, Any], nodes: int) -> dict[str, float]:
    requests = figures["requests"]
    watched = requests.get("watch nodes", {}).get("requests", 0.0)
    next_report = REPORT_MINUTES * 60 / nodes  # the wait for the event that proves a watch of nodes up to date
    bookmarks = requests.get("watch pods, until its bookmark", {}).get("requests", 0.0)
    return {
        f"{function} invocations": 1.0,
        f"{function} seconds": figures["seconds"],
        f"{function} kubernetes": sum(counts["requests"] for counts in requests.values()),
        f"{function} aws": sum(figures["calls"].values()),
        f"{function} waited": figures["silences"] + watched * next_report + bookmarks * BOOKMARK_SECONDS,
        f"{function} log bytes": figures["log_bytes"],
    }


def _first_invocations(by_function: Mapping[str, Mapping[str, Any]], nodes: int) -> BillItem:
    """What new processes need for their first invocation, besides the initialisation, which the model has."""
    starts = cost_model.COLD_STARTS / len(cost_model.MEASURED)
    swept = [name for name in FUNCTIONS if name != function_sizes.INTERRUPTION]  # its sweeps read no pods
    gib_seconds = sum(
        billed_seconds(name, by_function[name][FIRST], nodes) * function_sizes.memory(name, nodes) / 1024
        for name in swept
    )
    details = f"{starts:,.0f} new processes of each function that reads the cluster"
    return BillItem("first invocations", starts * gib_seconds, prices.GB_SECOND, details)
