"""GPUs that a driver of dynamic resource allocation publishes, instead of a device plugin."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.kubernetes import kinds
from local.world import Options, World, sample_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = "nvidia.com/gpu"
LIMIT = timedelta(minutes=30)


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster whose GPUs are published by a driver, with a NodePool of instance types that have one."""
    options = Options(version="1.36", behavior=lambda _machine: MachineBehavior(dynamic_devices=True))
    with World(cluster="demo", options=options) as started:
        started.apply([sample_objects.node_class(started)])
        requirements = {"karpenter.k8s.aws/instance-family": ["g5"], "karpenter.k8s.aws/instance-gpu-count": ["1"]}
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"}
        started.apply([sample_objects.node_pool(requirements, disruption=disruption)])
        yield started


def workers(world: World, replicas: int) -> None:
    """Pods with one GPU each."""
    deployment = sample_objects.deployment("worker", replicas, {"cpu": "1", "memory": "1Gi"})
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"}
    world.apply([deployment])


def condition(world: World, type_: str) -> list[dict[str, Any]]:
    conditions = (x for c in world.claims() for x in c.get("status", {}).get("conditions", []) if x["type"] == type_)
    return list(conditions)


@pytest.mark.flow
def test_nodes_whose_gpus_a_driver_publishes_are_initialized_and_counted(world: World) -> None:
    device_class = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {"extendedResourceName": GPU}}
    world.store.create(kinds.DEVICE_CLASSES, device_class)
    workers(world, 2)
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=LIMIT)
    world.run_for(timedelta(minutes=3))
    assert [GPU in node["status"]["allocatable"] for node in world.nodes()] == [False, False]
    assert [c["status"] for c in condition(world, "Initialized")] == ["True", "True"]
    assert [c["status"]["allocatable"][GPU] for c in world.claims()] == ["1", "1"]
    assert [c["metadata"]["annotations"]["tenon.sh/dynamic-resources"] for c in world.claims()] == [GPU, GPU]

    # a pod that has ended leaves its GPU to the next, and nothing is bought for it
    nodes = {node["metadata"]["name"] for node in world.nodes()}
    world.scale("default", "worker", 1)
    world.run_until(lambda: len(world.pods()) == 1, limit=LIMIT)
    world.scale("default", "worker", 2)
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=LIMIT)
    world.run_for(timedelta(minutes=2))
    assert {node["metadata"]["name"] for node in world.nodes()} == nodes
    world.scale("default", "worker", 0)
    world.run_until(lambda: not world.claims(), limit=LIMIT)


@pytest.mark.long
def test_without_a_device_class_the_node_is_waited_for_and_its_claim_names_the_resource(world: World) -> None:
    workers(world, 1)
    world.run_for(timedelta(minutes=10))
    assert [(c["status"], c["reason"]) for c in condition(world, "Initialized")] == [
        ("Unknown", "ResourceNotRegistered")
    ]
    assert f'resource "{GPU}"' in condition(world, "Initialized")[0]["message"]
