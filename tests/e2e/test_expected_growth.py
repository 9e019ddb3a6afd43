"""While a service is scaled out pod by pod, new nodes have room for the pods of the next hour."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e.cli.conftest import Shell
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEP = timedelta(minutes=12)
BEFORE, HALF, AFTER = 20, 25, 31
"""Pods before the service grows, after an hour of it and after two."""


@pytest.fixture
def world() -> Iterator[World]:
    """A service of twenty pods, which come one by one then."""
    with World(cluster="demo") as opened:
        opened.apply(sample_objects.node_class(opened))
        requests = {"cpu": "900m", "memory": "1Gi"}
        opened.apply(sample_objects.deployment("web", BEFORE, requests))
        yield opened


def grow(world: World) -> tuple[list[int], list[int]]:
    """For how many expected pods each node had room that was launched in the first hour and in the second."""
    requirements = {"karpenter.k8s.aws/instance-family": ["m5"], names.CAPACITY_TYPE: ["on-demand"]}
    world.apply(sample_objects.node_pool(requirements))
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
def test_nodes_have_room_for_the_pods_of_the_next_hour(world: World, tmp_path: Path) -> None:
    first, second = grow(world)
    assert not any(first), "an hour is needed to see that the service grows"
    assert any(second)
    messages = [e["message"] for e in events(world, "Launched", kind="NodeClaim")]
    assert any("expected pods" in message for message in messages)
    (kubeconfig := tmp_path / "kubeconfig").write_text(world.kubectl_config())
    roomy = [c["metadata"]["name"] for c in world.claims() if names.EXPECTED_PODS in c["metadata"]["annotations"]]
    for name in roomy:
        assert "more that are expected" in Shell(world, kubeconfig).tenon("explain", "nodeclaim", name).out
