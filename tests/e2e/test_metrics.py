"""Every metric is written during a launch, a disruption and a spot interruption."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from docs.descriptions import EVENTS
from local.kubernetes import kinds
from shared import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.world import World

FAILURES = {
    metrics.LIFECYCLE_FAILURES,
    metrics.NOT_LAUNCHED,
    metrics.REPAIRED,
    metrics.CATALOG_STALE,
    metrics.CATALOG_MALFORMED,
    metrics.PROACTIVELY_REPLACED,
    metrics.INTERRUPTION_CONTRADICTED,
}
"""Counts of failures, of forged events and of maintenance that EC2 announces: none of it happens here."""


def test_every_metric_is_written_by_its_function(
    spot_default: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world = spot_default
    name = next(d["metadata"]["name"] for d in load("spot-default.yaml") if d["kind"] == "Deployment")
    world.scale("default", name, 5)
    world.run_until(lambda: len(world.pods(phase="Running")) >= 5)
    world.interrupt_spot([world.instances()[0].id])
    world.run_for(timedelta(minutes=3))
    world.send_malformed_message("interruption")
    world.scale("default", name, 0)
    world.run_until(lambda: not world.nodes())
    world.run_for(timedelta(minutes=16))

    written = {
        (metric["Name"], invocation.function)
        for invocation in world.aws.functions.invocations
        for line in invocation.metrics
        for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    }
    known = {(m.name, m.function) for m in metrics.ALL}
    assert written <= known
    assert {(m.name, m.function) for m in metrics.ALL if m not in FAILURES} <= written, json.dumps(
        sorted(known - written)
    )
    reasons = {e["reason"] for e in world.store.list(kinds.EVENTS) if e.get("reportingComponent") == "tenon"}
    assert reasons
    assert reasons <= set(EVENTS)
