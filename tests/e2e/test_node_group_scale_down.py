"""Nodes of groups that aren't needed leave by Cluster Autoscaler's rules, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.faults import Fault
from local.kubernetes import kinds
from local.world import World, sample_objects
from tests.e2e.hostile_bounds import shutdown_delay
from tests.e2e.node_groups import (
    LARGE,
    LIMIT,
    all_run,
    auto_scaling_group,
    managed_node_group,
    node_of,
    options,
    scaling,
    sizes,
    two_nodes,
)
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo", options=scaling()) as world:
        yield world


@pytest.mark.parametrize("kind", ["managed", "self-managed"])
def test_a_group_grows_to_five_and_shrinks_to_none(world: World, kind: str) -> None:
    create = managed_node_group if kind == "managed" else auto_scaling_group
    group = create(world, "batch")
    world.apply(sample_objects.deployment("job", 5, LARGE))
    world.run_until(lambda: all_run(world, 5), limit=LIMIT)
    world.scale("default", "job", 0)
    world.run_for(timedelta(minutes=9, seconds=30))
    assert (sizes(group)[1], len(world.nodes())) == (5, 5)
    world.run_until(lambda: not world.nodes(), limit=4 * MINUTE + shutdown_delay())
    assert sizes(group) == (0, 0, 6)
    world.run_until(lambda: not world.instances(), limit=4 * MINUTE + shutdown_delay())
    assert len(world.aws.instances.all) == 5
    assert world.failures() == []
    assert {event["message"] for event in world.store.list(kinds.EVENTS) if event["reason"] == "ScaleDown"} == {
        "marked the node as toBeDeleted/unschedulable",
        "node removed by cluster autoscaler",
    }


def names(world: World) -> set[str]:
    return {node["metadata"]["name"] for node in world.nodes()}


@pytest.mark.flow
def test_the_underused_node_goes_and_its_pod_runs_elsewhere(world: World) -> None:
    full, underused = two_nodes(world)
    world.run_for(9 * MINUTE)
    assert names(world) == {full, underused}
    world.run_until(lambda: names(world) == {full}, limit=6 * MINUTE + shutdown_delay())
    world.run_until(lambda: all_run(world, 2), limit=2 * MINUTE)
    assert node_of(world, "small") == full
    assert len(world.aws.instances.all) == 2
    world.run_for(12 * MINUTE)
    assert names(world) == {full}
    assert world.failures() == []


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "small", "namespace": "default"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "small"}}},
}


@pytest.mark.parametrize("holder", ["budget", "pod", "node", "group", "local storage", "off"])
def test_a_node_stays(world: World, holder: str) -> None:
    small: dict[str, Any] = {}
    if holder == "pod":
        small["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    if holder == "local storage":
        small["volumes"] = [{"name": "cache", "emptyDir": {}}]
    kept = set(two_nodes(world, **small))
    if holder == "budget":
        world.apply(BUDGET)
    if holder == "node":
        disabled = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
        world.store.patch(kinds.NODES, node_of(world, "small"), {"metadata": {"annotations": disabled}})
    if holder == "group":
        boto3.client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=only_group(), MinSize=2)
    if holder == "off":
        world.apply(options({"scale-down-enabled": "false"}))
    world.run_for(30 * MINUTE)
    assert names(world) == kept
    assert sizes(only_group())[1] == 2
    assert all_run(world, 2)
    assert world.failures() == []


def test_a_node_whose_instance_cannot_be_terminated_takes_pods_again(world: World) -> None:
    _, underused = two_nodes(world)
    denied = Fault(code="AccessDenied", status=403, message="denied by a policy")
    world.faults.inject_aws("auto-scaling", "TerminateInstanceInAutoScalingGroup", denied, times=1000)

    def is_given_up() -> bool:
        messages = [e["message"] for e in events(world, "ScaleDownFailed")]
        return any("its instance couldn't be terminated" in message for message in messages)

    world.run_until(is_given_up, limit=30 * MINUTE)
    (node,) = [n for n in world.nodes() if n["metadata"]["name"] == underused]
    assert "ToBeDeletedByClusterAutoscaler" not in {t["key"] for t in node["spec"].get("taints") or ()}
    assert sizes(only_group())[1] == 2


def only_group() -> str:
    (group,) = boto3.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return str(group["AutoScalingGroupName"])


def test_options_shorten_the_time(world: World) -> None:
    world.apply(options({"scale-down-unneeded-time": "2m", "scale-down-delay-after-add": "1m"}))
    full, _ = two_nodes(world)
    world.run_until(lambda: names(world) == {full}, limit=5 * MINUTE + shutdown_delay())


def test_by_the_rules_of_node_pools_utilization_does_not_matter(world: World) -> None:
    quick = {
        "scale-down-unneeded-time": "2m",
        "scale-down-delay-after-add": "1m",
        "scale-down-utilization-threshold": "0",
    }
    world.apply(options(quick))
    full, underused = two_nodes(world)
    world.run_for(6 * MINUTE)
    assert names(world) == {full, underused}
    world.apply(options(quick, scale_down="consolidation"))
    world.run_until(lambda: names(world) == {full}, limit=5 * MINUTE + shutdown_delay())
    assert all_run(world, 2)


def test_a_node_that_is_needed_again_stays(world: World) -> None:
    full, underused = two_nodes(world)
    world.run_for(8 * MINUTE)
    tainted = [t["key"] for n in world.nodes() if n["metadata"]["name"] == underused for t in n["spec"]["taints"]]
    assert tainted == ["DeletionCandidateOfClusterAutoscaler"]
    world.apply(sample_objects.deployment("more", 1, {"cpu": "1", "memory": "256Mi"}))
    world.run_for(20 * MINUTE)
    assert names(world) == {full, underused}
    assert not [t for n in world.nodes() for t in n["spec"].get("taints", ())]
