"""Gangs: EC2 launches only a part of a PodGroup's nodes; that part goes back, and the whole is tried elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e import zone_capacity
from tests.e2e.pod_groups import definition
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""
PODS = 8


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def start(world: World, *, minimum: int = PODS, replicas: int = PODS) -> None:
    """A pool of m5.large, and a gang with a node for each of its pods."""
    requirements = {names.CAPACITY_TYPE: ["on-demand"], names.INSTANCE_TYPE: ["m5.large"]}
    pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "Never"})
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": minimum},
    }
    deployment = sample_objects.deployment("train", replicas, LARGE)
    deployment["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "train"
    world.apply([definition(), sample_objects.node_class(world), pool, group, deployment])


def zones(world: World) -> set[str]:
    return {node["metadata"]["labels"][names.ZONE] for node in world.nodes()}


@pytest.mark.flow
def test_what_was_launched_for_a_part_of_a_gang_goes_back_and_the_whole_is_launched_in_the_next_zone(
    world: World,
) -> None:
    zone_capacity.leave(world, a=PODS - 1)
    start(world)
    world.run_until(lambda: bool(events(world, "GangIncomplete")), limit=2 * MINUTE)
    world.run_until(lambda: not world.instances(), limit=2 * MINUTE)
    assert running(world) == []
    messages = [event["message"] for event in events(world, "GangIncomplete", kind="PodGroup", name="train")]
    assert any("× m5.large on-demand us-east-1a" in message for message in messages)

    zone_capacity.leave(world, b=3 * PODS)
    world.run_until(lambda: len(running(world)) == PODS, limit=15 * MINUTE)
    assert zones(world) == {"us-east-1b"}
    assert len(world.nodes()) == PODS


def test_a_gang_is_launched_in_one_zone(world: World) -> None:
    start(world)
    world.run_until(lambda: len(running(world)) == PODS, limit=3 * MINUTE)
    assert len(zones(world)) == 1


def test_a_gang_that_is_not_there_yet_buys_nothing(world: World) -> None:
    start(world, replicas=PODS - 1)
    world.run_for(3 * MINUTE)
    assert world.claims() == []
    world.scale("default", "train", PODS)
    world.run_until(lambda: len(running(world)) == PODS, limit=3 * MINUTE)


def test_attempts_have_a_brake(world: World) -> None:
    """A zone that always has a little capacity: for an hour, EC2 is asked for it a few times only."""
    zone_capacity.leave(world, a=PODS - 1)
    start(world)
    for _ in range(60):
        world.run_for(MINUTE)
        zone_capacity.leave(world, a=PODS - 1)
    assert running(world) == []
    assert 2 <= sum(e.get("count", 1) for e in events(world, "GangIncomplete")) <= 6
