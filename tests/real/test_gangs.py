"""Gangs on a real control plane: PodGroups of Kubernetes, whose kube-scheduler binds their pods all at once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.real.cluster import RealControlPlane
from local.world import Options, World, sample_objects
from shared.api import labels as names
from shared.cluster.resources import POD_GROUPS
from tests.real.conftest import BOOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""
PODS = 4
LIMIT = timedelta(minutes=2)


@pytest.fixture
def world(kubeconfig: Path | None, kubernetes: str) -> Iterator[World]:
    """A control plane with feature gate GenericWorkload, which is beta in 1.37 and off."""
    if kubeconfig is not None or kubernetes != "1.37":
        pytest.skip("needs a control plane of 1.37 with a feature gate")
    plane = RealControlPlane(kubernetes=kubernetes, feature_gates=("GenericWorkload",))
    options = Options(version=kubernetes, concurrency=8, timing=BOOT, control_plane=lambda: plane)
    with World(options=options) as running_world:
        requirements = {names.CAPACITY_TYPE: ["on-demand"], names.INSTANCE_TYPE: ["m5.large"]}
        pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "Never"})
        running_world.apply([sample_objects.node_class(running_world), pool])
        yield running_world
        assert running_world.failures() == []


def start(world: World) -> None:
    """A gang with a node for each of its pods."""
    plane = world.control_plane
    assert isinstance(plane, RealControlPlane)
    group = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": PODS}}},
    }
    plane._client.create(POD_GROUPS.path(namespace="default"), group)
    deployment = sample_objects.deployment("train", PODS, LARGE, schedulingGroup={"podGroupName": "train"})
    world.apply([deployment])


def test_a_gang_runs_whole(world: World) -> None:
    start(world)
    world.run_until(lambda: len(world.pods(phase="Running")) == PODS, limit=LIMIT)
    assert len(world.nodes()) == PODS
    assert len({node["metadata"]["labels"][names.ZONE] for node in world.nodes()}) == 1


def test_with_capacity_for_a_part_nothing_is_left_running(world: World) -> None:
    for zone in "abcdf":
        world.aws.capacity.set("on-demand", "*", f"us-east-1{zone}", PODS - 1 if zone == "a" else 0)
    start(world)
    world.run_until(lambda: any("at once would fit" in e["message"] for e in events(world)), limit=LIMIT)
    world.run_until(lambda: not (world.claims() or world.instances()), limit=LIMIT)
    assert world.pods(phase="Running") == []
    assert any(e["reason"] == "GangIncomplete" and e["involvedObject"]["name"] == "train" for e in events(world))
    for zone in "abcdf":
        world.aws.capacity.set("on-demand", "*", f"us-east-1{zone}", None)


def events(world: World) -> list[dict[str, Any]]:
    return world.store.list(world.store.kind("v1", "Event"))
