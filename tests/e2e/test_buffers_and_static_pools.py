"""CapacityBuffers next to static NodePools: free room on static nodes counts, and neither buys for the other."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import Options, World, sample_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
REQUESTS = {"cpu": "900m", "memory": "900Mi"}
LARGE = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["m7i.xlarge"]}
CHUNKS_A_NODE = 4
DISRUPTION = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}

Json = dict[str, Any]


@pytest.fixture
def world() -> Iterator[World]:
    with World(options=Options()) as world:
        world.apply([sample_objects.node_class(world), sample_objects.deployment("web", 0, REQUESTS)])
        yield world


def static_pool(replicas: int, **template: object) -> Json:
    return sample_objects.node_pool(LARGE, name="static", replicas=replicas, template=template)


def dynamic_pool(budget: str = "100%", **spec: Any) -> Json:
    disruption = {**DISRUPTION, "budgets": [{"nodes": budget}]}
    return sample_objects.node_pool(LARGE, name="dynamic", disruption=disruption, **spec)


def buffer(replicas: int) -> Json:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": replicas},
    }


def provisioning(world: World) -> tuple[str, str]:
    kind = world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    conditions = world.store.get(kind, "web", namespace="default")["status"]["conditions"]
    (current,) = (c for c in conditions if c["type"] == "Provisioning")
    return current["reason"], current["message"]


def sizes(world: World) -> tuple[int, int]:
    """The nodes of the static and of the dynamic NodePool."""
    return len(world.nodes(pool="static")), len(world.nodes(pool="dynamic"))


def bought(world: World) -> int:
    return len(world.timeline.of("claim created"))


@pytest.mark.parametrize("first", ["buffer", "pool"])
def test_chunks_take_the_room_of_static_nodes_and_only_the_others_are_bought(world: World, first: str) -> None:
    objects = [buffer(2 * CHUNKS_A_NODE + 3), static_pool(2)]
    world.apply([dynamic_pool(), *(objects if first == "buffer" else reversed(objects))])
    world.run_for(5 * MINUTE)
    assert sizes(world) == (2, 1)
    assert provisioning(world)[0] == "FitsExistingCapacity"
    assert bought(world) <= 5  # buffer first: its nodes are bought before the static pool's, and consolidated


def test_static_nodes_alone_are_as_many_as_they_should_be(world: World) -> None:
    world.apply([static_pool(2), buffer(5 * CHUNKS_A_NODE)])
    world.run_for(5 * MINUTE)
    assert (sizes(world), bought(world)) == ((2, 0), 2)
    reason, message = provisioning(world)
    assert reason == "RequiresNewCapacity"
    assert message.startswith("8 of 20 chunks fit on existing nodes; 12 can't be scheduled: ")
    assert "static" in message


def test_what_a_smaller_static_pool_loses_is_bought_from_the_dynamic_one(world: World) -> None:
    world.apply([dynamic_pool(), static_pool(3), buffer(2 * CHUNKS_A_NODE)])
    world.run_for(5 * MINUTE)
    assert sizes(world) == (3, 0)
    world.apply(static_pool(1))
    world.run_for(6 * MINUTE)
    assert sizes(world) == (1, 1)
    assert provisioning(world)[0] == "FitsExistingCapacity"


def test_drifted_static_nodes_are_replaced_and_the_room_stays(world: World) -> None:
    world.apply([dynamic_pool(), static_pool(2), buffer(2 * CHUNKS_A_NODE)])
    world.run_for(5 * MINUTE)
    before = {n["metadata"]["name"] for n in world.nodes()}
    world.apply(static_pool(2, terminationGracePeriod="5m"))
    world.run_until(lambda: before.isdisjoint(n["metadata"]["name"] for n in world.nodes()))
    world.run_for(3 * MINUTE)
    assert sizes(world) == (2, 0)
    assert provisioning(world)[0] == "FitsExistingCapacity"


def test_limits_of_the_dynamic_pool_hold_for_chunks_and_not_for_static_nodes(world: World) -> None:
    world.apply([dynamic_pool(limits={"cpu": "4"}), static_pool(2), buffer(4 * CHUNKS_A_NODE)])
    world.run_for(5 * MINUTE)
    assert sizes(world) == (2, 1)
    reason, message = provisioning(world)
    assert (reason, message.partition(" can't")[0]) == (
        "RequiresNewCapacity",
        "12 of 16 chunks fit on existing nodes; 4",
    )


def test_nodes_that_a_smaller_buffer_leaves_go_within_the_budget(world: World) -> None:
    world.apply([dynamic_pool(budget="1"), static_pool(1), buffer(5 * CHUNKS_A_NODE)])
    world.run_for(5 * MINUTE)
    assert sizes(world) == (1, 4)
    world.apply(buffer(CHUNKS_A_NODE))
    leaving = 0
    for _ in range(120):
        world.run_for(timedelta(seconds=5))
        leaving = max(leaving, sum("deletionTimestamp" in c["metadata"] for c in world.claims()))
    assert (sizes(world), leaving) == ((1, 0), 1)
