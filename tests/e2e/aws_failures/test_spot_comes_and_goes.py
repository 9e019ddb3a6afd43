"""Spot has no capacity for hours, on-demand takes its place, and spot comes back: few nodes are bought for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.world import sample_objects
from shared.api import labels
from tests.e2e.aws_failures.conditions import MINUTE, assert_nothing_lost_or_doubled, launched
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from local.world import World

NONE = 0


def capacity_types(world: World) -> list[str]:
    return sorted(n["metadata"]["labels"].get(labels.CAPACITY_TYPE, "") for n in world.nodes())


def start(world: World) -> None:
    requirements = {
        labels.CAPACITY_TYPE: ["spot", "on-demand"],
        "karpenter.k8s.aws/instance-cpu": ["2"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"}
    pool = sample_objects.node_pool(requirements, disruption=disruption)
    web = sample_objects.deployment("web", 6, {"cpu": "700m", "memory": "256Mi"})
    world.apply([sample_objects.node_class(world), pool, web])
    world.run_until(lambda: len(running(world)) == 6, limit=10 * MINUTE)
    world.run_for(5 * MINUTE)


@pytest.mark.long
def test_pods_run_on_demand_for_two_hours_and_return_to_spot_once(world: World) -> None:
    start(world)
    assert set(capacity_types(world)) == {"spot"}
    before = launched(world)
    world.aws.capacity.set("spot", "*", "*", NONE)
    world.interrupt_spot([i.id for i in world.instances()])
    world.run_until(lambda: len(running(world)) == 6 and set(capacity_types(world)) == {"on-demand"}, limit=10 * MINUTE)
    world.run_for(110 * MINUTE)
    assert capacity_types(world) == ["on-demand"] * 3
    assert launched(world) == before + 3
    world.aws.capacity.set("spot", "*", "*", None)
    world.run_for(40 * MINUTE)
    assert set(capacity_types(world)) == {"spot"}
    assert launched(world) <= before + 3 + 3
    assert_nothing_lost_or_doubled(world, pods=6)


def test_capacity_that_comes_and_goes_every_ten_minutes_replaces_no_node_for_the_sake_of_it(world: World) -> None:
    start(world)
    before = launched(world)
    for minute in range(0, 60, 10):
        world.aws.capacity.set("spot", "*", "*", NONE if minute % 20 == 0 else None)
        world.run_for(10 * MINUTE)
    assert launched(world) <= before + 1
    assert_nothing_lost_or_doubled(world, pods=6)
