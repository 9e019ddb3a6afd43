"""Every metric is written during a launch, a disruption and a spot interruption."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from docs.descriptions import EVENTS
from local.faults import Fault
from local.kubernetes import kinds
from local.world import Options, World
from shared.base import metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

UNWRITTEN = {
    metrics.PAUSED,
    metrics.BREAKERS,
    metrics.HELD,
    metrics.GROUP_NODES_ADDED,
    metrics.GROUP_NODES_REMOVED,
    metrics.LIFECYCLE_FAILURES,
    metrics.NOT_LAUNCHED,
    metrics.REPAIRED,
    metrics.CATALOG_STALE,
    metrics.GARBAGE_KEPT,
    metrics.CATALOG_MALFORMED,
    metrics.PROACTIVELY_REPLACED,
    metrics.INTERRUPTION_CONTRADICTED,
}
"""Counts of failures, forged events, announced maintenance, pauses, limits and node groups: none of it is here."""


@pytest.mark.flow
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
    assert {metric for metric in written if metric[0] != metrics.UNWELL} <= known
    assert {(m.name, m.function) for m in metrics.ALL if m not in UNWRITTEN} <= written, json.dumps(
        sorted(known - written)
    )
    reasons = {e["reason"] for e in world.store.list(kinds.EVENTS) if e.get("reportingComponent") == "tenon"}
    assert reasons
    assert reasons <= set(EVENTS)


def minutes_without_a_hint(world: World, *, since: datetime) -> list[int]:
    """For each full minute since then, the alarm's expression: 1 if pods waited and no hint came, else 0."""
    minutes = int((world.clock.now() - since) / timedelta(minutes=1))
    pending, hints = [0.0] * (minutes + 1), [0.0] * (minutes + 1)
    for invocation in world.aws.functions.invocations:
        minute = int((invocation.at - since) / timedelta(minutes=1))
        if invocation.at < since:
            continue
        for line in invocation.metrics:
            pending[minute] = max(pending[minute], *line.get(metrics.PENDING.name, [0.0]))
            hints[minute] += sum(line.get(metrics.HINTS.name, [0.0]))
    return [int(p > 0 and h < 1) for p, h in zip(pending[:-1], hints[:-1], strict=True)]


def test_the_relay_is_silent_only_while_it_cannot_publish(spot_default: World) -> None:
    world = spot_default
    container = {"name": "c", "image": "example/c:1", "resources": {"requests": {"cpu": "10000"}}}
    metadata = {"name": "huge", "namespace": "default"}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    world.run_for(timedelta(minutes=2))

    waiting = world.clock.now()
    world.run_for(timedelta(minutes=12))
    assert sum(minutes_without_a_hint(world, since=waiting)) <= 2  # a minute's hint may fall into the next

    world.faults.inject_aws("eventbridge", "PutEvents", Fault(code="AccessDeniedException", status=400), times=100_000)
    silent = world.clock.now() + timedelta(minutes=1)
    world.run_for(timedelta(minutes=14))
    minutes = minutes_without_a_hint(world, since=silent)
    assert minutes[:11] == [1] * 11  # the alarm needs ten
    world.faults.clear()
    world.store.delete(kinds.PODS, "huge", namespace="default")
    world.run_for(timedelta(minutes=2))


def unwell(world: World) -> list[tuple[str, float]]:
    """What functions reported, and its weight."""
    lines = (line for invocation in world.aws.functions.invocations for line in invocation.metrics)
    return [(line["reason"], line[metrics.UNWELL][0]) for line in lines if metrics.UNWELL in line]


def test_with_lean_observability_only_what_is_wrong_is_written(load: Callable[[str], list[dict[str, Any]]]) -> None:
    with World(cluster="demo", options=Options(context={"observability": "lean"})) as world:
        world.apply(load("spot-default.yaml"))
        name = next(d["metadata"]["name"] for d in load("spot-default.yaml") if d["kind"] == "Deployment")
        world.scale("default", name, 5)
        world.run_until(lambda: len(world.pods(phase="Running")) >= 5)
        world.run_for(timedelta(minutes=10))
        assert not [line for invocation in world.aws.functions.invocations for line in invocation.metrics]

        container = {"name": "c", "image": "example/c:1", "resources": {"requests": {"cpu": "10000"}}}
        metadata = {"name": "huge", "namespace": "default"}
        world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
        world.run_for(timedelta(minutes=4))
        assert unwell(world) == []
        world.run_for(timedelta(minutes=6))
        reports = Counter(unwell(world))
        assert reports.keys() == {("pods-waiting", 1)}
        assert reports["pods-waiting", 1] >= metrics.ALARMING
        world.store.delete(kinds.PODS, "huge", namespace="default")

        world.run_for(timedelta(minutes=2))
        before = len(unwell(world))
        world.send_malformed_message("interruption")
        world.run_for(timedelta(minutes=6))
        assert set(unwell(world)[before:]) == {("dead-letters", metrics.ALARMING)}
        world.dead_letters()


def test_a_relay_that_cannot_publish_is_reported_after_ten_minutes(spot_default: World) -> None:
    world = spot_default
    container = {"name": "c", "image": "example/c:1", "resources": {"requests": {"cpu": "10000"}}}
    metadata = {"name": "huge", "namespace": "default"}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    world.run_for(timedelta(minutes=14))
    assert "relay-silent" not in {reason for reason, _ in unwell(world)}
    world.faults.inject_aws("eventbridge", "PutEvents", Fault(code="AccessDeniedException", status=400), times=100_000)
    world.run_for(timedelta(minutes=9))
    assert "relay-silent" not in {reason for reason, _ in unwell(world)}
    world.run_for(timedelta(minutes=5))
    assert "relay-silent" in {reason for reason, _ in unwell(world)}
    world.faults.clear()


def test_a_function_that_fails_is_reported(spot_default: World) -> None:
    world = spot_default
    world.run_for(timedelta(minutes=2))
    refused = Fault(code="AccessDeniedException", status=400)
    world.faults.inject_aws("s3", "GetObject", refused, times=3)
    world.aws.functions.invoke("catalog", {"refresh": "prices"})
    assert ("function-errors", 1) in unwell(world)
    world.faults.clear()
