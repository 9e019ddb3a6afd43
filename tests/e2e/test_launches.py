"""Launches in number and in need: few CreateFleet calls for many pods, and capacity that goes and comes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from local.world import World

BOTH = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}


def workload(name: str, replicas: int, *, cpu: str, memory: str) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


def running(world: World) -> int:
    return len(world.pods(phase="Running"))


def fleet_calls(world: World) -> int:
    return world.aws.calls.count()["ec2", "CreateFleet"]


def pool(world: World, *requirements: dict[str, Any]) -> None:
    """Have the pool of spot-default.yaml require these instead."""
    world.apply(
        {
            "apiVersion": "karpenter.sh/v1alpha5",
            "kind": "Provisioner",
            "metadata": {"name": "default"},
            "spec": {"providerRef": {"name": "default"}, "requirements": list(requirements)},
        }
    )
    world.run_for(timedelta(seconds=30))


@pytest.mark.long
def test_a_thousand_pods_of_one_deployment_take_three_calls_at_most(spot_default: World) -> None:
    world = spot_default
    pool(world, BOTH)
    world.apply(workload("web", 1000, cpu="500m", memory="1Gi"))
    world.run_until(lambda: running(world) == 1000, limit=timedelta(minutes=10))
    assert fleet_calls(world) <= 3
    assert len(world.instances()) == len(world.claims())


@pytest.mark.long
def test_a_thousand_pods_of_twenty_deployments_take_ten_calls_at_most(spot_default: World) -> None:
    world = spot_default
    pool(world, BOTH)
    for i in range(20):
        world.apply(workload(f"web-{i}", 50, cpu=f"{100 + 50 * i}m", memory=f"{256 * (1 + i % 5)}Mi"))
    world.run_until(lambda: running(world) == 1000, limit=timedelta(minutes=10))
    assert fleet_calls(world) <= 10
    assert len(world.instances()) == len(world.claims())


def test_when_a_zone_has_no_capacity_the_pods_run_in_another_within_one_more_round(spot_default: World) -> None:
    world = spot_default
    pool(world, BOTH)
    world.scale("default", "inflate", 3)
    world.run_until(lambda: running(world) == 3, limit=timedelta(minutes=5))
    (best,) = {i.availability_zone for i in world.instances()}
    before = fleet_calls(world)
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.set(capacity_type, "*", best, 0)
    world.scale("default", "inflate", 12)
    world.run_until(lambda: running(world) == 12, limit=timedelta(minutes=5))
    new = [i.availability_zone for i in world.instances()[-1:]]
    assert best not in new
    assert fleet_calls(world) - before <= 2


def test_without_spot_capacity_the_pods_run_on_demand_where_that_is_allowed(spot_default: World) -> None:
    world = spot_default
    pool(world, BOTH)
    world.aws.capacity.set("spot", "*", "*", 0)
    world.scale("default", "inflate", 5)
    world.run_until(lambda: running(world) == 5, limit=timedelta(minutes=5))
    bought = {n["metadata"]["labels"]["karpenter.sh/capacity-type"] for n in world.nodes()}
    assert bought == {"on-demand"}
    assert world.failures() == []
