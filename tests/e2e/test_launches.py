"""Launches in number and in need: few CreateFleet calls for many pods, and capacity that goes and comes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.world import World, sample_objects
from local.world.sample_objects import deployment
from shared.launch.fleet.batching import FEW_CALLS
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from collections.abc import Callable

SPOT_AMD64 = {"karpenter.sh/capacity-type": ["spot"], "kubernetes.io/arch": ["amd64"]}
BOTH = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}


def fleet_calls(world: World) -> int:
    return world.aws.calls.count()["ec2", "CreateFleet"]


def pool(world: World, *requirements: dict[str, Any]) -> None:
    """Have the pool of spot-default.yaml require these instead."""
    world.apply(
        {
            "apiVersion": "karpenter.sh/v1alpha5",
            "kind": "Provisioner",
            "metadata": {"name": "default"},
            "spec": {
                "providerRef": {"name": "default"},
                "requirements": list(requirements),
                "ttlSecondsAfterEmpty": 30,
            },
        }
    )
    world.run_for(timedelta(seconds=30))


def claims_of_first_plan(world: World) -> int:
    """How many claims the first plan had; more may only be bought for pods whose own node is up and has no room."""
    created = world.timeline.of("claim created")
    launched = min(h.at for h in world.timeline.of("claim launched"))
    first = {h.name for h in created if h.at < launched}
    up = {h.name: h.at for h in world.timeline.of("claim initialized")}
    bought_for = {claim["metadata"]["name"]: planned_pods(claim) for claim in world.claims()}
    planned_for = {pod: name for name, pods in bought_for.items() if name in first for pod in pods}
    for later in (h for h in created if h.name not in first):
        for pod in bought_for[later.name]:
            assert up[planned_for[pod]] < later.at, f"{later.name} was bought for {pod}, whose node was on its way"
    return len(first)


def no_node_is_for_nothing(world: World) -> None:
    if world.options.hostility is not None:
        # A node that joins late may find that its pods run elsewhere. It goes when it has been empty for 30 s.
        world.run_for(timedelta(minutes=3))
    assert len(world.instances()) == len(world.claims()) == len(world.nodes())
    assert {p["spec"]["nodeName"] for p in world.pods(phase="Running")} == {
        n["metadata"]["name"] for n in world.nodes()
    }


def pend(world: World, docs: list[dict[str, Any]], workloads: list[dict[str, Any]]) -> None:
    """Have all pods pending before there is a pool for them."""
    world.apply([doc for doc in docs if doc["kind"] == "AWSNodeTemplate"])
    world.apply(workloads)
    world.run_for(timedelta(seconds=30))
    assert len(world.pending()) == 1000


@pytest.mark.long
def test_a_thousand_pods_of_one_deployment_take_no_more_calls_than_the_burst(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    pend(world, load("spot-default.yaml"), [deployment("web", 1000, {"cpu": "500m", "memory": "1Gi"})])
    pool(world, BOTH)
    world.run_until(lambda: len(running(world)) == 1000, limit=timedelta(minutes=10))
    assert fleet_calls(world) <= FEW_CALLS
    assert len(world.instances()) == claims_of_first_plan(world)
    no_node_is_for_nothing(world)


@pytest.mark.long
def test_a_thousand_pods_of_twenty_deployments_take_ten_calls_at_most(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    sizes = [(f"{100 + 50 * i}m", f"{256 * (1 + i % 5)}Mi") for i in range(20)]
    pend(
        world,
        load("spot-default.yaml"),
        [deployment(f"web-{i}", 50, {"cpu": cpu, "memory": memory}) for i, (cpu, memory) in enumerate(sizes)],
    )
    pool(world, BOTH)
    world.run_until(lambda: len(running(world)) == 1000, limit=timedelta(minutes=10))
    assert fleet_calls(world) <= 10
    # A node may come up with less room than planned, or kube-scheduler may bind another pod first: the pods that find
    # no room on their own node get further nodes (consolidation joins them later).
    assert len(world.instances()) <= 1.1 * claims_of_first_plan(world)
    no_node_is_for_nothing(world)


@pytest.mark.flow
def test_when_a_zone_has_no_capacity_the_pods_run_in_another_within_one_more_round(spot_default: World) -> None:
    world = spot_default
    pool(world, BOTH)
    world.scale("default", "inflate", 3)
    world.run_until(lambda: len(running(world)) == 3, limit=timedelta(minutes=5))
    (best,) = {i.availability_zone for i in world.instances()}
    before = fleet_calls(world)
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.set(capacity_type, "*", best, 0)
    world.scale("default", "inflate", 12)
    world.run_until(lambda: len(running(world)) == 12, limit=timedelta(minutes=5))
    new = [i.availability_zone for i in world.instances()[-1:]]
    assert best not in new
    assert fleet_calls(world) - before <= 2


@pytest.mark.flow
def test_without_spot_capacity_the_pods_run_on_demand_where_that_is_allowed(spot_default: World) -> None:
    world = spot_default
    pool(world, BOTH)
    world.aws.capacity.set("spot", "*", "*", 0)
    world.scale("default", "inflate", 5)
    world.run_until(lambda: len(running(world)) == 5, limit=timedelta(minutes=5))
    bought = {n["metadata"]["labels"]["karpenter.sh/capacity-type"] for n in world.nodes()}
    assert bought == {"on-demand"}
    assert world.failures() == []


@pytest.mark.parametrize(("region", "zones"), [("us-west-1", 2), ("ca-west-1", 3)])
def test_a_region_with_few_zones_or_types_does_as_well(
    region: str, zones: int, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    with World(cluster="demo", region=region) as world:
        world.apply(load("spot-default.yaml"))
        world.scale("default", "inflate", 5)
        world.run_until_idle()
        assert len(running(world)) == 5
        names = {f"{region}{letter}" for letter in "abc"[:zones]}
        assert {n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in world.nodes()} <= names
        world.scale("default", "inflate", 0)
        world.run_until_idle()
        assert world.instances() == []
        assert world.dead_letters() == []
        assert world.failures() == []


def planned_pods(claim: dict[str, Any]) -> list[str]:
    return [pod for pod in claim["metadata"]["annotations"]["tenon.sh/planned-pods"].split(",") if pod]


@pytest.mark.calm_world  # functions that run at once place pods elsewhere, which are planned for nodes on their way
def test_a_round_after_insufficient_capacity_keeps_what_the_first_one_launched(world: World) -> None:
    world.aws.capacity.set("spot", "m5.2xlarge", "*", 1)
    world.apply(deployment("web", 18, {"cpu": "1", "memory": "1Gi"}))
    world.run_for(timedelta(seconds=20))
    pool = sample_objects.node_pool(SPOT_AMD64 | {"node.kubernetes.io/instance-type": ["m5.2xlarge", "m5.large"]})
    for zone in "abc":  # so that the larger type is planned
        world.aws.prices.set_spot("m5.2xlarge", f"us-east-1{zone}", 0.01)
        world.aws.prices.set_spot("m5.large", f"us-east-1{zone}", 0.02)
    world.refresh_catalog()
    world.apply([sample_objects.node_class(world), pool])
    world.run_until(lambda: len(world.pods(phase="Running")) == 18)
    claims = {c["metadata"]["name"]: c for c in world.claims()}
    launched = world.timeline.of("claim launched")
    (first,) = (e.name for e in launched if e.details["instance_type"] == "m5.2xlarge")
    assert first in claims
    decisions = {c["metadata"]["annotations"]["tenon.sh/decision"] for c in claims.values()}
    assert len(decisions) == 2
    planned = [pod for claim in claims.values() for pod in planned_pods(claim)]
    assert len(planned) == len(set(planned)) == 18, "no pod was planned for two nodes that exist"
    used = {p["spec"]["nodeName"] for p in world.pods(phase="Running")}
    assert len(used) == len(claims), "every node that was launched is used"
    created = world.timeline.of("claim created")
    by_decision = {e.details["decision"] for e in created}
    assert by_decision >= decisions
    ended = max(e.at for e in created) - min(e.at for e in created)
    assert ended <= timedelta(seconds=15), "the second round doesn't wait for the first one's nodes"


def test_launch_templates_that_others_delete_are_created_again(world: World) -> None:
    world.apply([sample_objects.node_class(world), sample_objects.node_pool({})])
    world.apply(deployment("first", 1, {"cpu": "1"}))
    world.run_until(lambda: len(running(world)) == 1)
    ec2 = boto3.client("ec2", region_name=world.region)
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    world.apply(deployment("second", 4, {"cpu": "1"}))
    world.run_until(lambda: len(running(world)) == 5)
    assert world.failures() == []
