"""Hundreds of nodes at once, with the latencies and the limits of AWS: in time, with nothing refused and nothing left.

Durations are those of the cluster; work counts as processor time. Functions run six at a time, as Lambda runs them at
once: ``pytest -m long tests/e2e/test_large_bursts.py``.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.aws import latencies
from local.aws.latencies import Latency
from local.world import World, sample_objects
from local.world.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.long, pytest.mark.calm_world]

SLOW_API_SERVER = {
    **latencies.table(),
    ("kubernetes", "GET"): Latency(
        service="kubernetes", operation="GET", median=0.008, p99=0.1, source="a third above the table's"
    ),
    ("kubernetes", "*"): Latency(
        service="kubernetes", operation="*", median=0.012, p99=0.15, source="half above the table's; tail twice as long"
    ),
}
"""The table's figures of the API server are assumed: what is in time with it is so with a slower one."""
EXPECTED_ERRORS = {
    "ConditionalCheckFailedException": "two invocations change one row of DynamoDB: the second reads again",
    "IdempotentParameterMismatch": "another invocation has launched some of the same NodeClaims: they are listed",
    "InvalidLaunchTemplateName.AlreadyExistsException": "another invocation has created the same launch template",
}
"""Answers by which invocations that run at once notice each other."""


@pytest.fixture
def large(load: Callable[[str], list[dict[str, Any]]]) -> Iterator[World]:
    """A cluster in which functions run at once, some sweeps after its deployment."""
    options = Options(elapsed=time.process_time, concurrency=6, hostility=None, latencies=SLOW_API_SERVER)
    with World(cluster="demo", options=options) as world:
        world.apply(load("spot-default.yaml"))
        world.run_for(timedelta(seconds=90))
        yield world


def one_each(replicas: int) -> dict[str, Any]:
    affinity = sample_objects.one_per_node("web")
    return sample_objects.deployment("web", replicas, {"cpu": "1", "memory": "1Gi"}, affinity=affinity)


def run_pods(world: World, pods: int) -> timedelta:
    """How long it takes until that many run."""
    began = world.clock.now()
    world.run_until(lambda: len(world.pods(phase="Running")) >= pods, limit=timedelta(minutes=15))
    return world.clock.now() - began


def too_long(world: World) -> list[str]:
    """The invocations over half of their function's timeout."""
    functions = world.aws.functions
    return [
        f"{i.function}: {i.latency:.1f} s"
        for i in functions.invocations
        if i.latency > functions.named(i.function).timeout / 2 and functions.named(i.function).timeout < 600
    ]


def refused(world: World) -> set[tuple[str, str, str]]:
    """The calls of functions that AWS refused: function, operation and error."""
    calls = [c for c in world.aws.calls.all if c.caller and c.error]
    return {(c.caller, c.operation, c.error) for c in calls if c.error not in EXPECTED_ERRORS}


def test_300_nodes_of_one_pod_each_run_within_75_seconds(large: World) -> None:
    large.apply(one_each(300))
    assert run_pods(large, 300) <= timedelta(seconds=75)
    assert not too_long(large)


def test_250_nodes_go_to_zero_with_nothing_refused_and_nothing_left(large: World) -> None:
    large.apply(one_each(250))
    run_pods(large, 250)
    large.scale("default", "web", 0)
    large.run_until(lambda: not (large.nodes() or large.claims() or large.instances()), limit=timedelta(minutes=30))
    assert not too_long(large)
    assert not refused(large)
    assert not large.dead_letters()


def test_230_spot_nodes_interrupted_at_once_are_replaced_with_nothing_refused_and_nothing_left(large: World) -> None:
    large.apply(one_each(230))
    run_pods(large, 230)
    interrupted = {i.id for i in large.instances() if i.lifecycle == "spot"}
    assert len(interrupted) == 230
    large.interrupt_spot(sorted(interrupted))
    large.run_until(
        lambda: (
            len(large.pods(phase="Running")) == 230
            and not interrupted & {i.id for i in large.instances()}
            and not interrupted & {c["status"].get("providerID", "").rpartition("/")[2] for c in large.claims()}
            and not interrupted & {n["spec"]["providerID"].rpartition("/")[2] for n in large.nodes()}
        ),
        limit=timedelta(minutes=30),
    )
    assert len(large.instances()) == len(large.claims()) == len(large.nodes()) == 230
    assert not too_long(large)
    assert not refused(large)
    assert not large.dead_letters()


def test_1000_pods_of_20_deployments_take_little_longer_than_without_latencies(
    load: Callable[[str], list[dict[str, Any]]],
) -> None:
    """CreateFleet's own seconds included: 1.1 times what a cluster without latencies takes."""

    def duration(options: Options) -> timedelta:
        with World(cluster="demo", options=options) as world:
            world.apply(load("spot-default.yaml"))
            world.run_for(timedelta(seconds=90))
            sizes = [("250m", "256Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("2", "2Gi")]
            for number in range(20):
                cpu, memory = sizes[number % len(sizes)]
                requests = {"cpu": cpu, "memory": memory}
                world.apply(sample_objects.deployment(f"web-{number}", 50, requests))
            took = run_pods(world, 1000)
            assert not too_long(world)
            return took

    without = Options(elapsed=time.process_time, concurrency=6, hostility=None, latencies=None)
    with_latencies = Options(elapsed=time.process_time, concurrency=6, hostility=None)
    assert duration(with_latencies) <= 1.1 * duration(without)
