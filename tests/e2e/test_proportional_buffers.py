"""CapacityBuffers in proportion to the cluster: they follow its size, and not the nodes that they cause themselves."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from local.world import Options, World, sample_objects
from shared.api import labels as names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINUTE = timedelta(minutes=1)
ONE_A_NODE = {"cpu": "1500m", "memory": "1Gi"}
SMALL = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["m7i.large"]}

Json = dict[str, Any]


@pytest.fixture
def world() -> Iterator[World]:
    with World(options=Options()) as world:
        disruption = {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "30s",
            "budgets": [{"nodes": "100%"}],
        }
        pool = sample_objects.node_pool(SMALL, disruption=disruption)
        world.apply([sample_objects.node_class(world), pool, sample_objects.deployment("web", 0, ONE_A_NODE)])
        yield world


def buffer(annotations: dict[str, str], most: int = 1000) -> Json:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
        "spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": most},
    }


def chunks(world: World, name: str = "web") -> int:
    kind = world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    return int(world.store.get(kind, name, namespace="default")["status"]["replicas"])


def changes(world: World) -> tuple[int, int]:
    """NodeClaims that were created and deleted so far."""
    return len(world.timeline.of("claim created")), len(world.timeline.of("claim deleted"))


def run_and_record(world: World, minutes: int) -> list[int]:
    """The different numbers of chunks in these minutes, in order."""
    seen = [chunks(world)]
    for _ in range(minutes * 6):
        world.run_for(MINUTE / 6)
        if chunks(world) != seen[-1]:
            seen.append(chunks(world))
    return seen


@pytest.mark.parametrize(
    "sizes", [(10, 20, 10), pytest.param((10, 50, 200, 50, 10), marks=pytest.mark.long)], ids=["20", "200"]
)
def test_room_follows_the_nodes_up_and_down_without_a_turn(world: World, sizes: tuple[int, ...]) -> None:
    world.apply(buffer({names.PER_NODES: "10"}))
    world.run_for(MINUTE)
    for pods in sizes:
        before = changes(world)
        nodes = len(world.nodes())
        world.scale("default", "web", pods)
        seen = run_and_record(world, 6)
        created, deleted = (now - then for now, then in zip(changes(world), before, strict=True))
        assert len(world.nodes()) == pods + pods // 10  # a chunk is as large as a node: the worst case for a loop
        assert seen[-1] == pods // 10
        rising = pods + pods // 10 > nodes
        assert all((a < b) == rising for a, b in pairwise(seen)), seen
        assert (created, deleted) == ((len(world.nodes()) - nodes, 0) if rising else (0, nodes - len(world.nodes())))
    assert not world.failures()


def test_a_ladder_over_cores_with_the_least_and_the_spec_as_most(world: World) -> None:
    world.apply(buffer({names.PER_CORES: "3:2, 9:3, 12:50", names.MIN_CHUNKS: "1"}, most=4))
    seen = {}
    for pods in (0, 1, 2, 6, 8):
        world.scale("default", "web", pods)
        world.run_for(3 * MINUTE)
        seen[pods] = chunks(world)
    assert seen == {0: 1, 1: 1, 2: 2, 6: 3, 8: 4}


@pytest.mark.flow
def test_a_small_cluster_keeps_the_least(world: World, load: Callable[[str], list[Json]]) -> None:
    world.apply(load("capacity-buffer-proportion.yaml"))
    world.run_for(2 * MINUTE)
    assert chunks(world, "headroom") == 2
