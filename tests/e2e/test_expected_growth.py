"""While a service is scaled out pod by pod, new nodes have room for the pods of the next hour."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP = timedelta(minutes=8)
BEFORE, HALF, AFTER = 40, 48, 56
"""Pods before the service grows, after an hour of it and after two."""


@pytest.fixture
def world() -> Iterator[World]:
    """A service of forty pods, each of which gets a node of its own where nodes are bought for one pod at a time."""
    with World(cluster="demo") as opened:
        opened.apply(sample_objects.node_class(opened))
        requests = {"cpu": "1500m", "memory": "2Gi"}
        opened.apply(sample_objects.deployment("web", BEFORE, requests))
        yield opened


def grow(world: World, annotations: dict[str, str]) -> tuple[list[int], list[int]]:
    """For how many expected pods each node had room that was launched in the first hour and in the second."""
    requirements = {"karpenter.k8s.aws/instance-family": ["m5"], names.CAPACITY_TYPE: ["on-demand"]}
    world.apply(sample_objects.node_pool(requirements, annotations=annotations))
    world.run_until(lambda: len(running(world)) == BEFORE, limit=timedelta(minutes=10))
    seen = {c["metadata"]["name"] for c in world.claims()}
    first, second = (launched(world, seen, replicas) for replicas in (range(BEFORE, HALF), range(HALF, AFTER)))
    assert len(running(world)) == AFTER
    return first, second


def launched(world: World, seen: set[str], replicas: range) -> list[int]:
    """For how many expected pods each node had room that was launched for one more pod after each of these numbers."""
    expected = []
    for number in replicas:
        world.scale("default", "web", number + 1)
        world.run_for(STEP)
        new = {c["metadata"]["name"]: c["metadata"]["annotations"] for c in world.claims()}
        expected += [int(new[name].get(names.EXPECTED_PODS, "0")) for name in new.keys() - seen]
        seen.update(new)
    return expected


@pytest.mark.flow
def test_nodes_have_room_for_the_pods_of_the_next_hour(world: World) -> None:
    first, second = grow(world, {})
    assert not any(first), "an hour is needed to see that the service grows"
    assert any(second)
    messages = [e["message"] for e in events(world, "Launched", kind="NodeClaim")]
    assert any("expected pods" in message for message in messages)


def test_nodes_are_bought_for_existing_pods_alone_where_a_nodepool_says_so(world: World) -> None:
    first, second = grow(world, {names.EXPECTED_GROWTH: "false"})
    assert not any(first + second)
