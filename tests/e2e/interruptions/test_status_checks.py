"""EC2's status checks fail, or it has scheduled an event of an instance.

Karpenter's specs (pkg/controllers/interruption, pkg/providers/instancestatus), and where they are covered:

- forceful termination when the system's or the instance's check fails, with the annotation of the deadline, which later
  sweeps leave as it is: ``test_a_node_whose_check_fails_is_removed_despite_its_budget``;
- a scheduled event sets no deadline: ``test_a_scheduled_event_is_scheduled_maintenance``;
- both at once, healthy and initializing statuses, failures of EBS volumes, all details of a status:
  ``tests/unit/interruption/test_instance_status.py``;
- each failure is counted once: ``test_a_node_whose_check_fails_is_removed_despite_its_budget`` (one event).

Karpenter's dry run is a variable of its tests. Differences: scheduled events are maintenance, as those that AWS Health
announces; a brake keeps nodes where too many fail; each status is asked for every three minutes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import sample_objects
from tests.e2e.interruptions.environment import (
    assert_no_failures,
    deployment,
    fill,
    instance_of,
    small_nodes,
)
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from local.aws.instance_status import Check
    from local.world import World

THREE_MINUTES = timedelta(minutes=3)


def filled(world: World, pods: int) -> list[str]:
    """A cluster with that many pods, two a node; returns the nodes' names."""
    small_nodes(world)
    world.apply([deployment("web", pods)])
    fill(world, pods)
    return sorted(n["metadata"]["name"] for n in world.nodes())


@pytest.mark.flow
def test_a_node_whose_check_fails_is_removed_despite_its_budget(world: World) -> None:
    assert_removed(world, "system")


def test_so_is_a_node_that_cannot_be_reached(world: World) -> None:
    assert_removed(world, "instance")


def assert_removed(world: World, check: Check) -> None:
    nodes = filled(world, 10)
    world.apply([sample_objects.budget("web", 0)])
    instance = instance_of(world, nodes[0])
    (claim,) = (c["metadata"]["name"] for c in world.claims() if c["status"]["nodeName"] == nodes[0])
    world.aws.statuses.fail(instance, check)
    world.run_for(timedelta(seconds=110))
    assert nodes[0] in {n["metadata"]["name"] for n in world.nodes()}, "a check must fail for two minutes"
    world.run_until(lambda: events(world, "InstanceUnhealthy") != [], limit=timedelta(minutes=5))
    world.run_until(lambda: instance not in {i.id for i in world.instances()}, limit=timedelta(minutes=2))
    world.run_until(lambda: len(running(world, "web")) == 10, limit=timedelta(minutes=5))
    world.run_for(timedelta(minutes=10))
    (event,) = events(world, "InstanceUnhealthy")
    assert event["involvedObject"]["name"] == claim
    assert event["count"] == 1
    assert f"EC2's {check} status check fails" in event["message"]
    assert set(nodes) - {nodes[0]} <= {n["metadata"]["name"] for n in world.nodes()}
    assert_no_failures(world)


def test_failures_of_volumes_and_of_instances_without_a_nodeclaim_change_nothing(world: World) -> None:
    nodes = filled(world, 4)
    world.aws.statuses.fail(instance_of(world, nodes[0]), "attached-ebs")
    claims = world.store.kind("karpenter.sh/v1", "NodeClaim")
    ours = instance_of(world, nodes[1])
    (claim,) = (c["metadata"]["name"] for c in world.claims() if c["status"]["nodeName"] == nodes[1])
    world.aws.statuses.fail(ours)
    world.store.patch(claims, claim, {"metadata": {"finalizers": None}})
    world.store.delete(claims, claim)
    world.run_for(timedelta(minutes=10))
    assert nodes[0] in {n["metadata"]["name"] for n in world.nodes()}
    assert not events(world, "InstanceUnhealthy")


def test_where_many_fail_at_once_none_is_removed_and_an_event_says_so(world: World) -> None:
    nodes = filled(world, 16)
    failing = [instance_of(world, node) for node in nodes[:4]]
    world.aws.statuses.first_page_is_empty = True
    for instance in failing:
        world.aws.statuses.fail(instance)
    world.run_for(timedelta(minutes=12))
    assert sorted(n["metadata"]["name"] for n in world.nodes()) == nodes
    (event,) = events(world, "InstancesUnhealthy", kind="NodePool")
    assert "status checks of 4 of 8 instances fail, more than 20%" in event["message"]
    for instance in failing[1:]:
        world.aws.statuses.recover(instance)
    world.run_until(lambda: failing[0] not in {i.id for i in world.instances()}, limit=timedelta(minutes=6))
    assert set(failing[1:]) <= {i.id for i in world.instances()}


def test_a_scheduled_event_is_scheduled_maintenance(world: World) -> None:
    nodes = filled(world, 4)
    start = world.clock.now() + timedelta(days=10)
    over = world.aws.statuses.schedule(instance_of(world, nodes[1]), "instance-reboot", start)
    over.description = f"[Completed] {over.description}"
    world.aws.statuses.schedule(instance_of(world, nodes[0]), "instance-retirement", start)
    world.run_until(lambda: bool(events(world, "ScheduledChange")), limit=timedelta(minutes=4))
    (claim,) = (c for c in world.claims() if c.get("status", {}).get("nodeName") == nodes[0])
    assert claim["metadata"]["annotations"]["tenon.sh/maintenance-starts"].startswith(start.strftime("%Y-%m-%dT%H:%M"))
    world.run_until(lambda: nodes[0] not in {n["metadata"]["name"] for n in world.nodes()}, limit=timedelta(minutes=15))
    world.run_until(lambda: len(running(world, "web")) == 4, limit=timedelta(minutes=5))
    assert nodes[1] in {n["metadata"]["name"] for n in world.nodes()}


def test_without_the_right_everything_else_goes_on(world: World) -> None:
    nodes = filled(world, 2)
    world.aws.enforcement.deny("interruption", "ec2:DescribeInstanceStatus")
    world.run_for(THREE_MINUTES)
    world.expect_denials()
    assert_no_failures(world)
    assert [n["metadata"]["name"] for n in world.nodes()] == nodes
