"""An image or user data whose nodes don't work, under drift of a NodePool: one node gets it, and no pod is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.world import Options, World, sample_objects
from shared.api.labels import CAPACITY_TYPE, DRIFT_WAVES, INSTANCE_TYPE
from tests.e2e.aws_failures.conditions import MINUTE, launched, message, node_pool
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubelets.machine import Machine

LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""
BROKEN = {
    "never joins": MachineBehavior(never_joins=True),
    "never ready": MachineBehavior(never_ready=True),
}


class Machines:
    """How new machines behave."""

    def __init__(self) -> None:
        self.behavior = MachineBehavior()

    def __call__(self, _machine: Machine) -> MachineBehavior:
        return self.behavior


@pytest.fixture
def machines() -> Machines:
    return Machines()


@pytest.fixture
def world(machines: Machines) -> Iterator[World]:
    with World(cluster="demo", options=Options(behavior=machines)) as world:
        yield world


def pool(*, waves: str) -> dict[str, Any]:
    requirements = {INSTANCE_TYPE: ["m5.large"], CAPACITY_TYPE: ["on-demand"]}
    disruption = {"consolidateAfter": "Never", "budgets": [{"nodes": "10%"}]}
    created = sample_objects.node_pool(requirements, disruption=disruption)
    created["metadata"]["annotations"] = {DRIFT_WAVES: waves}
    return created


def start(world: World, nodes: int, *, waves: str) -> set[str]:
    """That many nodes with a pod each; their names."""
    web = sample_objects.deployment("web", nodes, LARGE)
    world.apply([sample_objects.node_class(world), pool(waves=waves), web, sample_objects.budget("web", "10%")])
    world.run_until(lambda: len(running(world)) == nodes, limit=20 * MINUTE)
    world.run_for(2 * MINUTE)
    return {n["metadata"]["name"] for n in world.nodes()}


def break_image(world: World, machines: Machines, how: str) -> None:
    """Every new machine is broken, and all nodes drift."""
    machines.behavior = BROKEN[how]
    world.apply(sample_objects.node_class(world, userData="#!/bin/bash\nsystemctl stop containerd\n"))


def kept(world: World, before: set[str]) -> int:
    return len(before & {n["metadata"]["name"] for n in world.nodes() if "deletionTimestamp" not in n["metadata"]})


@pytest.mark.parametrize("how", ["never joins", pytest.param("never ready", marks=pytest.mark.long)])
def test_with_waves_one_node_shows_it_and_drift_stops(world: World, machines: Machines, how: str) -> None:
    before = start(world, 10, waves="1, 10%, 50% healthy for 5m")
    break_image(world, machines, how)
    instances = launched(world)
    world.run_for(90 * MINUTE)
    assert kept(world, before) == 10
    assert launched(world) == instances + 1
    assert len(running(world)) == 10
    assert "isn't initialized after 10m" in message(node_pool(world), "DriftStopped")
    assert events(world, "DriftStopped", kind="NodePool")
