"""Options of a node class that decide which machines there are, and how their kubelets are configured."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from local.world import World, sample_objects
from shared.api import labels as names
from shared.api.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = timedelta(minutes=10)


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def types_of_nodes(world: World) -> list[str]:
    return [n["metadata"]["labels"][names.INSTANCE_TYPE] for n in world.nodes()]


def test_pods_of_a_class_with_enclaves_run_on_machines_that_have_them_and_its_nodes_drift_without(world: World) -> None:
    node_class = sample_objects.node_class(world)
    with_enclaves = sample_objects.node_class(world, enclaveOptions={"enabled": True})
    world.apply([node_class, sample_objects.node_pool({}), sample_objects.deployment("web", 1, {"cpu": "500m"})])
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=LIMIT)
    (before,) = types_of_nodes(world)
    assert INSTANCE_TYPES[before]["NitroEnclavesSupport"] == "unsupported"  # the cheapest doesn't have them

    world.apply([with_enclaves])
    world.run_until(lambda: types_of_nodes(world) not in ([], [before]) and len(world.nodes()) == 1, limit=12 * LIMIT)
    (after,) = types_of_nodes(world)
    assert INSTANCE_TYPES[after]["NitroEnclavesSupport"] == "supported"
    assert [i.enclave_enabled for i in world.instances() if i.instance_type == after] == [True]
    assert len(world.pods(phase="Running")) == 1


@pytest.mark.flow
def test_nodes_of_two_sizes_have_the_kubelet_settings_that_the_expressions_give_for_each(world: World) -> None:
    kubelet = {
        "maxPods": "vcpus * 6",
        "kubeReserved": {"cpu": "vcpus * 45", "memory": "max_pods * 20"},
        "shutdownGracePeriod": "45s",
    }
    requirements = {"karpenter.k8s.aws/instance-family": ["m5"], names.ARCH: ["amd64"]}
    world.apply([sample_objects.node_class(world, kubelet=kubelet), sample_objects.node_pool(requirements)])
    world.apply([sample_objects.deployment("small", 1, {"cpu": "1"}, nodeSelector={names.INSTANCE_TYPE: "m5.large"})])
    world.apply([sample_objects.deployment("large", 1, {"cpu": "6"}, nodeSelector={names.INSTANCE_TYPE: "m5.2xlarge"})])
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=LIMIT)
    statuses = {n["metadata"]["labels"][names.INSTANCE_TYPE]: n["status"] for n in world.nodes()}
    assert {name: status["capacity"]["pods"] for name, status in statuses.items()} == {
        "m5.large": "12",
        "m5.2xlarge": "48",
    }
    assert {name: parse_quantity("cpu", s["allocatable"]["cpu"]) for name, s in statuses.items()} == {
        "m5.large": 2000 - 90,
        "m5.2xlarge": 8000 - 360,
    }
    planned = {c["metadata"]["labels"][names.INSTANCE_TYPE]: c["status"]["allocatable"] for c in world.claims()}
    for name, allocatable in planned.items():
        for resource in ("cpu", "memory", "pods"):
            reported = parse_quantity(resource, statuses[name]["allocatable"][resource])
            assert parse_quantity(resource, allocatable[resource]) <= reported
    assert all("shutdownGracePeriod: 45s" in i.user_data.decode() for i in world.instances())
