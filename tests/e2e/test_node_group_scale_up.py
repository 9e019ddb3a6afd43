"""Pending pods make node groups grow: by as many nodes as they need, where they may run, and elsewhere if none come."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.world import World, sample_objects
from tests.e2e.node_groups import (
    LARGE,
    LIMIT,
    all_run,
    auto_scaling_group,
    managed_node_group,
    options,
    reasons,
    scaling,
    sizes,
)
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubelets.machine import Machine


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo", options=scaling()) as world:
        yield world


@pytest.mark.flow
@pytest.mark.parametrize("kind", ["managed", "self-managed"])
def test_a_group_grows_from_none_to_five(world: World, kind: str) -> None:
    create = managed_node_group if kind == "managed" else auto_scaling_group
    group = create(world, "batch")
    world.apply(sample_objects.deployment("job", 5, LARGE))
    world.run_until(lambda: all_run(world, 5), limit=LIMIT)
    assert sizes(group) == (0, 5, 6)
    world.run_for(timedelta(minutes=5))
    assert sizes(group) == (0, 5, 6)
    assert world.claims() == []
    assert len(world.aws.instances.all) == 5
    assert world.failures() == []
    assert {"TriggeredScaleUp", "ScaledUpGroup"} <= reasons(world)


def test_a_zonal_volume_makes_the_group_of_its_zone_grow(world: World) -> None:
    first, second = list(world.aws.account.subnets)[:2]
    groups = {zone: managed_node_group(world, f"in-{zone}", zones=[zone]) for zone in (first, second)}
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [second]}]}
    common = {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
    csi = {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}
    disk = {"capacity": {"storage": "5Gi"}, "csi": csi, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    claimed = {"claimRef": {"namespace": "default", "name": "data"}}
    world.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": "disk"},
                "spec": {**common, **disk, **claimed},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data", "namespace": "default"},
                "spec": {**common, "volumeName": "disk", "resources": {"requests": {"storage": "5Gi"}}},
            },
        ]
    )
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    world.apply(sample_objects.deployment("database", 1, LARGE, volumes=[volume]))
    world.run_until(lambda: all_run(world, 1), limit=LIMIT)
    assert {zone: sizes(group)[1] for zone, group in groups.items()} == {first: 0, second: 1}


def test_a_group_without_capacity_is_left_for_the_other_one(world: World) -> None:
    without = managed_node_group(world, "without", instance_type="m5.large")
    fallback = managed_node_group(world, "fallback", instance_type="m5.xlarge")
    world.aws.capacity.set("on-demand", "m5.large", "*", 0)
    world.apply(sample_objects.deployment("job", 1, LARGE))
    world.run_until(lambda: all_run(world, 1), limit=timedelta(minutes=5))
    assert (sizes(without)[1], sizes(fallback)[1]) == (0, 1)
    assert "ScaleUpTimedOut" in reasons(world)
    assert len(world.aws.instances.all) == 1


def test_machines_that_never_join_are_given_up_in_time() -> None:
    def behavior(machine: Machine) -> MachineBehavior:
        return MachineBehavior(never_joins=machine.instance_type == "m5.large")

    with World(cluster="demo", options=scaling(behavior=behavior)) as world:
        deaf = managed_node_group(world, "deaf", instance_type="m5.large")
        fallback = managed_node_group(world, "fallback", instance_type="m5.xlarge")
        world.apply(options({"max-node-provision-time": "5m"}))
        world.apply(sample_objects.deployment("job", 1, LARGE))
        world.run_for(timedelta(minutes=5))
        assert (sizes(deaf)[1], sizes(fallback)[1]) == (1, 0)
        world.run_until(lambda: all_run(world, 1), limit=timedelta(minutes=3))
        assert (sizes(deaf)[1], sizes(fallback)[1]) == (1, 1)


@pytest.mark.flow
@pytest.mark.parametrize(("pool_type", "is_group"), [("t3.large", False), ("m5.4xlarge", True)])
def test_the_cheaper_of_a_group_and_two_pools_grows(world: World, pool_type: str, *, is_group: bool) -> None:
    group = managed_node_group(world, instance_type="m5.large")
    world.apply(
        [sample_objects.node_class(world), on_demand_pool("first", pool_type), on_demand_pool("second", LARGEST)]
    )
    world.apply(sample_objects.deployment("job", 1, LARGE))
    world.run_until(lambda: all_run(world, 1), limit=LIMIT)
    assert (sizes(group)[1], len(world.claims())) == ((1, 0) if is_group else (0, 1))


LARGEST = "m5.8xlarge"


def on_demand_pool(name: str, instance_type: str) -> dict[str, Any]:
    requirements = {
        "karpenter.sh/capacity-type": ["on-demand"],
        "node.kubernetes.io/instance-type": [instance_type],
    }
    return sample_objects.node_pool(requirements, name=name)


@pytest.mark.parametrize(
    ("prefer", "group_type", "pool_type"), [("node-groups", LARGEST, "m5.large"), ("pools", "m5.large", LARGEST)]
)
def test_a_preference_comes_before_the_price(world: World, prefer: str, group_type: str, pool_type: str) -> None:
    group = managed_node_group(world, instance_type=group_type)
    world.apply([sample_objects.node_class(world), on_demand_pool("default", pool_type), options({}, prefer)])
    world.apply(sample_objects.deployment("job", 1, LARGE))
    world.run_until(lambda: all_run(world, 1), limit=LIMIT)
    assert (sizes(group)[1], len(world.claims())) == ((1, 0) if prefer == "node-groups" else (0, 1))


def test_the_expander_decides_between_groups(world: World) -> None:
    cheap = managed_node_group(world, "cheap", instance_type="m5.large")
    named = managed_node_group(world, "named", instance_type="m5.xlarge")
    world.apply(options({"expander": "priority,least-waste", "max-nodes-total": "1"}))
    name = "cluster-autoscaler-priority-expander"
    priorities = {"priorities": "10: ['.*']\n50: ['named']\n"}
    metadata = {"name": name, "namespace": "kube-system"}
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": priorities})
    world.apply(sample_objects.deployment("job", 5, LARGE))
    world.run_until(lambda: all_run(world, 2), limit=LIMIT)
    world.run_for(timedelta(minutes=3))
    assert (sizes(cheap)[1], sizes(named)[1]) == (0, 1)
    assert "MaxNodesTotalReached" in reasons(world)


def test_nothing_is_scaled_while_cluster_autoscaler_runs(world: World) -> None:
    group = managed_node_group(world)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "it",
            "renewTime": f"{world.clock.now() + timedelta(minutes=2):%Y-%m-%dT%H:%M:%S.%fZ}",
        },
    }
    world.apply(lease)
    world.apply(sample_objects.deployment("job", 1, LARGE))
    world.run_for(timedelta(minutes=2))
    assert sizes(group)[1] == 0
    world.run_until(lambda: all_run(world, 1), limit=LIMIT)
    assert sizes(group)[1] == 1


@pytest.mark.parametrize("lag", [timedelta(seconds=30)])
def test_answers_of_auto_scaling_may_be_half_a_minute_old(lag: timedelta) -> None:
    with World(cluster="demo", options=scaling()) as world:
        group = managed_node_group(world, maximum=30)
        world.aws.consistency.lag = lag
        for pods in (3, 7, 12):
            world.scale("default", "job", pods) if pods > 3 else world.apply(
                sample_objects.deployment("job", pods, LARGE)
            )
            world.run_for(timedelta(seconds=20))
        world.run_until(lambda: all_run(world, 12), limit=LIMIT)
        assert sizes(group)[1] == 12
        world.run_until(lambda: len(world.nodes()) == 12, limit=LIMIT)
        assert len(world.aws.instances.all) == 12


def test_a_pod_that_no_group_can_run_is_told_so_once(world: World) -> None:
    group = managed_node_group(world)
    world.apply(sample_objects.deployment("huge", 1, {"cpu": "64"}))
    world.run_for(timedelta(minutes=5))
    (event,) = events(world, "NotTriggerScaleUp")
    assert event["message"].startswith("pod didn't trigger scale-up: ")
    assert f"node group {group}" in event["message"]
    assert sizes(group)[1] == 0
