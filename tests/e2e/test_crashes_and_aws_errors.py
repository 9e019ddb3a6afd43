"""Functions crash at any line; EC2 has no capacity, throttles or launches part of a fleet: pods still get nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import pytest

from local.faults import Fault
from local.kubernetes import kinds
from local.world import sample_objects
from shared.cluster.lease import DURATION, NAMESPACE, lease_name

if TYPE_CHECKING:
    from local.world import World


def all_is_well(world: World, pods: int) -> None:
    world.run_until_idle(limit=timedelta(hours=1))
    assert len(world.pods(phase="Running")) == pods
    assert len(world.instances()) == len(world.claims()) == len(world.nodes())
    held = {c["status"]["providerID"].rsplit("/", 1)[-1] for c in world.claims()}
    assert held == {i.id for i in world.instances()}


@pytest.mark.flow
@pytest.mark.parametrize("crash", ["before", "after"])
def test_a_provisioner_that_dies_around_createfleet_launches_each_claim_once(spot_default: World, crash: str) -> None:
    world = spot_default
    world.faults.inject_aws("ec2", "CreateFleet", Fault(crash="before" if crash == "before" else "after"))
    world.scale("default", "inflate", 3)
    all_is_well(world, 3)
    assert world.faults.occurred
    assert len(world.aws.instances.all) == len(world.claims())


@pytest.mark.parametrize(
    ("verb", "path"),
    [("POST", "/nodeclaims"), ("PATCH", "/nodeclaims/"), ("PATCH", "/status"), ("PATCH", "/nodes/"), ("DELETE", "/")],
)
def test_a_connection_that_breaks_at_any_write_costs_time_and_nothing_else(
    spot_default: World, verb: str, path: str
) -> None:
    world = spot_default
    for when in ("before", "after"):
        world.faults.inject_kubernetes(verb, path, Fault(disconnect=when), times=2)
    world.scale("default", "inflate", 3)
    all_is_well(world, 3)
    world.scale("default", "inflate", 0)
    all_is_well(world, 0)


@pytest.mark.parametrize("function", ["provisioner", "lifecycle", "disruption", "termination"])
@pytest.mark.parametrize("lines", [10, 40])
def test_a_function_that_dies_at_some_line_leaves_nothing_behind(
    spot_default: World, function: str, lines: int
) -> None:
    world = spot_default
    path = "shared/provisioning/" if function == "provisioner" else "functions/"
    world.faults.crash_after_lines(function, lines, path=path)
    world.scale("default", "inflate", 3)
    all_is_well(world, 3)
    world.scale("default", "inflate", 0)
    all_is_well(world, 0)


@pytest.mark.flow
def test_throttled_createfleet_is_tried_again_and_not_in_a_storm(spot_default: World) -> None:
    world = spot_default
    world.faults.throttle("ec2", "CreateFleet", times=4)
    world.scale("default", "inflate", 3)
    all_is_well(world, 3)
    assert world.aws.calls.count()["ec2", "CreateFleet"] == 5


def test_without_spot_capacity_in_one_zone_the_pods_run_in_another(spot_default: World) -> None:
    world = spot_default
    world.aws.capacity.set("spot", "*", "us-east-1a", 0)
    world.aws.capacity.set("spot", "*", "us-east-1b", 0)
    world.scale("default", "inflate", 3)
    all_is_well(world, 3)
    assert {n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in world.nodes()} == {"us-east-1c"}


@pytest.mark.long
def test_without_any_capacity_calls_are_bounded_and_pods_run_soon_after_it_returns(spot_default: World) -> None:
    world = spot_default
    world.aws.capacity.set("spot", "*", "*", 0)
    world.scale("default", "inflate", 3)
    minutes = 3
    world.run_for(timedelta(minutes=minutes))
    assert world.pods(phase="Running") == []
    assert world.instances() == []
    # The pods' own hint and a sweep a minute; in each at most three rounds, in a round three calls: the narrow and the
    # wide one for spot, and one for on-demand.
    assert world.aws.calls.count()["ec2", "CreateFleet"] <= (minutes + 1) * 3 * 3
    messages = [e["message"] for e in world.store.list(kinds.EVENTS) if e["source"].get("component") == "tenon"]
    assert any("capacity" in message for message in messages)
    world.aws.capacity.set("spot", "*", "*", None)
    returned = world.clock.now()
    world.run_until(lambda: len(world.pods(phase="Running")) == 3, limit=timedelta(minutes=6))
    # Looked for each minute; the rest is what a look takes.
    assert min(h.at for h in world.timeline.of("claim launched")) - returned < timedelta(seconds=70)


@pytest.mark.flow
def test_a_lease_that_a_dead_function_left_costs_time_and_no_message(spot_default: World) -> None:
    world = spot_default
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": lease_name(world.cluster), "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": "disruption/dead",
            "leaseDurationSeconds": int(DURATION.total_seconds()),
            "renewTime": world.clock.now().isoformat(timespec="microseconds").replace("+00:00", "Z"),
        },
    }
    world.apply(lease)
    world.scale("default", "inflate", 3)
    all_is_well(world, 3)
    assert world.dead_letters() == []


@pytest.mark.parametrize("crash", ["before", "after"])
def test_a_crash_after_ec2_launched_a_part_of_a_fleet_costs_a_minute(
    world: World, crash: Literal["before", "after"]
) -> None:
    apart = sample_objects.one_per_node("web")
    requirements = {"karpenter.sh/capacity-type": ["spot"], "node.kubernetes.io/instance-type": ["m5.large"]}
    zone = {"topology.kubernetes.io/zone": ["us-east-1a"]}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(requirements | zone)])
    world.aws.capacity.set("spot", "m5.large", "us-east-1a", 1)
    # The run dies before it has deleted both NodeClaims for which there is no capacity.
    world.faults.inject_kubernetes("DELETE", "/nodeclaims/", Fault(crash=crash))
    world.apply([sample_objects.deployment("web", 3, {"cpu": "1"}, affinity=apart)])
    world.run_until(lambda: bool(world.faults.occurred), limit=timedelta(minutes=2))
    world.aws.capacity.set("spot", "m5.large", "us-east-1a", None)
    world.run_until(lambda: len(world.pods(phase="Running")) == 3, limit=timedelta(minutes=3))
    all_is_well(world, 3)
    assert len(world.aws.instances.all) == 3
