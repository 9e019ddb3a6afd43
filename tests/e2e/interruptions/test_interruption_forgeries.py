"""Forged but well-formed events in the interruption queue: their effects are limited."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.faults import Fault
from local.world.sample_objects import budget
from tests.e2e.interruptions.environment import (
    REBALANCE,
    RESERVED,
    SPOT,
    STATE,
    assert_no_failures,
    claim_annotations,
    deployment,
    event,
    fill,
    health,
    interruptions,
    is_deleting,
    send,
    since,
    small_nodes,
)

if TYPE_CHECKING:
    from local.world import World

REFUSED = Fault(code="RequestLimitExceeded", status=503)
DEADLINE = "karpenter.sh/nodeclaim-termination-timestamp"


def what_is_there(world: World) -> dict[str, Any]:
    return {
        "nodes": sorted((n["metadata"]["uid"], json.dumps(n["spec"])) for n in world.nodes()),
        "claims": sorted((c["metadata"]["uid"], json.dumps(c["metadata"]["annotations"])) for c in world.claims()),
        "pods": sorted((p["metadata"]["uid"], p["spec"].get("nodeName", "")) for p in world.pods()),
        "instances": sorted(i.id for i in world.instances()),
    }


def counted(world: World, metric: str) -> int:
    return sum(int(values[0]) for i in interruptions(world) for m in i.metrics for values in [m.get(metric)] if values)


@pytest.fixture
def on_demand(world: World) -> World:
    small_nodes(world, capacity_types=["on-demand"])
    world.apply([deployment("web", 2)])
    fill(world, 2)
    return world


@pytest.mark.parametrize("about", [SPOT, REBALANCE])
def test_spot_events_do_not_affect_on_demand_instances(on_demand: World, about: str) -> None:
    world = on_demand
    (instance,) = world.instances()
    before = what_is_there(world)
    send(world, *[event(world, about, {"instance-id": instance.id, "instance-action": "terminate"})] * 5)
    world.run_for(timedelta(minutes=5))
    assert what_is_there(world) == before
    assert counted(world, "tenon_interruption_contradicted_total") == 5
    assert world.dead_letters() == []
    assert_no_failures(world)


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_a_running_instance_that_is_reported_as_stopping_is_kept(on_demand: World, state: str) -> None:
    world = on_demand
    (instance,) = world.instances()
    before = what_is_there(world)
    send(world, event(world, STATE, {"instance-id": instance.id, "state": state}))
    world.run_for(timedelta(minutes=5))
    assert what_is_there(world) == before
    assert counted(world, "tenon_interruption_contradicted_total") == 1
    assert world.dead_letters() == []
    assert_no_failures(world)


def test_warnings_about_unmanaged_and_ended_instances_change_nothing(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (gone,) = world.instances()
    world.interrupt_spot([gone.id])
    world.run_until(lambda: gone.id not in {i.id for i in world.instances()}, limit=timedelta(minutes=4))
    world.run_for(timedelta(minutes=2))
    before = what_is_there(world)
    for about in (SPOT, STATE, REBALANCE, RESERVED):
        for instance in (gone.id, "i-0123456789abcdef0"):
            send(world, event(world, about, {"instance-id": instance, "state": "terminated"}))
    world.run_for(timedelta(minutes=5))
    assert what_is_there(world) == before
    assert world.dead_letters() == []
    assert_no_failures(world)


def test_a_reservation_interruption_does_not_affect_spot_instances(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    before = what_is_there(world)
    send(world, event(world, RESERVED, {"instance-id": instance.id}))
    world.run_for(timedelta(minutes=3))
    assert what_is_there(world) == before


def test_reservation_warnings_about_many_on_demand_instances_replace_one_at_a_time(on_demand: World) -> None:
    world = on_demand
    world.scale("default", "web", 8)
    fill(world, 8)
    instances = {i.id for i in world.instances()}
    assert len(instances) == 4
    send(world, *[event(world, RESERVED, {"instance-id": id_}) for id_ in sorted(instances)])
    most = 0
    for _ in range(60):
        world.run_for(timedelta(seconds=5))
        most = max(most, sum("deletionTimestamp" in c["metadata"] for c in world.claims()))
    assert most == 1
    assert len(instances - {i.id for i in world.instances()}) <= 2
    assert world.dead_letters() == []
    assert_no_failures(world)


@pytest.mark.flow
def test_an_unconfirmed_warning_overrides_no_budget(quiet_world: World) -> None:
    world = quiet_world
    world.apply([budget("held", 0), deployment("held", 1), deployment("web", 1)])
    fill(world, 2)
    (instance,) = world.instances()
    (node,) = (n["metadata"]["name"] for n in world.nodes())
    (held,) = (p["metadata"]["uid"] for p in world.pods() if p["metadata"]["labels"]["app"] == "held")
    forged = world.clock.now()
    send(world, event(world, SPOT, {"instance-id": instance.id, "instance-action": "terminate"}))
    world.run_for(timedelta(minutes=5))
    # It causes a replacement, which is launched first, and evictions that the budget allows: none.
    assert held in {p["metadata"]["uid"] for p in world.pods(node=node, phase="Running")}
    assert DEADLINE not in claim_annotations(world, node)
    assert instance.id in {i.id for i in world.instances()}
    assert len(world.pods(phase="Running")) == 2
    (joined,) = (since(forged, h) for h in world.timeline.of("node registered") if h.at >= forged)
    (left,) = (since(forged, h) for h in world.timeline.of("pod terminating") if h.at >= forged)
    assert joined <= left
    # It is verified again for a while, drained once, and never goes to the dead-letter queue.
    messages = [line["message"] for i in interruptions(world) if i.at >= forged for line in i.logs]
    assert messages.count("Draining a node") == 1
    assert 2 <= world.aws.calls.count()["ec2", "DescribeSpotInstanceRequests"] <= 5
    assert world.dead_letters() == []
    assert_no_failures(world)


def test_a_warning_that_ec2_confirms_late_is_followed_at_once_and_gets_its_deadline_in_time(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.apply([budget("held", 0), deployment("held", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    (node,) = (n["metadata"]["name"] for n in world.nodes())
    world.aws.instances.spot_status_delay = timedelta(seconds=4)
    warned = world.clock.now()
    world.interrupt_spot([instance.id])
    world.run_until(lambda: is_deleting(world, node), limit=timedelta(seconds=5))
    world.run_until(lambda: DEADLINE in claim_annotations(world, node), limit=timedelta(seconds=20))
    world.run_until(lambda: not world.pods(node=node), limit=timedelta(minutes=2))
    assert (world.clock.now() - warned).total_seconds() <= 110
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=2))
    created = [h for h in world.timeline.of("claim created") if h.at >= warned]
    assert len(created) == 1
    assert world.dead_letters() == []
    assert_no_failures(world)


def test_a_warning_is_followed_when_ec2_cannot_be_called(quiet_world: World) -> None:
    world = quiet_world
    world.apply([budget("held", 0), deployment("held", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    (node,) = (n["metadata"]["name"] for n in world.nodes())
    world.faults.inject_aws("ec2", "DescribeSpotInstanceRequests", REFUSED, times=100, caller="interruption")
    warned = world.clock.now()
    world.interrupt_spot([instance.id])
    world.run_until(
        lambda: is_deleting(world, node) and DEADLINE in claim_annotations(world, node), limit=timedelta(seconds=10)
    )
    world.run_until(lambda: not world.pods(node=node), limit=timedelta(minutes=2))
    assert (world.clock.now() - warned).total_seconds() <= 110
    messages = {line["message"] for i in interruptions(world) if i.at >= warned for line in i.logs}
    assert "EC2 could not be called; events are accepted without verification" in messages


@pytest.mark.parametrize("ahead", [timedelta(seconds=90), timedelta(days=-1), timedelta(days=3)])
def test_one_message_about_all_instances_that_ec2_does_not_confirm_drains_nothing_that_is_protected(
    world: World, ahead: timedelta
) -> None:
    """Each node is guarded by another rule: a budget of its NodePool, its pod's annotation, a PodDisruptionBudget."""
    small_nodes(world, budgets="0", name="closed")
    small_nodes(world, name="open")
    guarded = {"karpenter.sh/do-not-disrupt": "true"}
    world.apply(
        [
            deployment("closed", 6, nodeSelector={"karpenter.sh/nodepool": "closed"}),
            deployment("guarded", 4, annotations=guarded, nodeSelector={"karpenter.sh/nodepool": "open"}),
            budget("held", 0),
            deployment("held", 2, nodeSelector={"karpenter.sh/nodepool": "open"}),
        ]
    )
    fill(world, 12)
    running = {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    launched = {i.id for i in world.instances()}
    send(world, health(world, *launched, start=world.clock.now() + ahead))
    world.run_for(timedelta(minutes=15))
    assert running <= {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    assert not [c for c in world.claims() if DEADLINE in c["metadata"].get("annotations", {})]
    assert launched <= {i.id for i in world.instances()}
    assert len(world.instances()) <= len(launched) + 1
    assert world.dead_letters() == []
    assert_no_failures(world)


def test_one_message_about_all_instances_replaces_a_tenth_of_a_node_pool_at_a_time(world: World) -> None:
    small_nodes(world)
    world.apply([deployment("web", 40)])
    fill(world, 40)
    launched = {i.id for i in world.instances()}
    send(world, health(world, *launched, start=world.clock.now() + timedelta(seconds=90)))
    most = 0
    for _ in range(60):
        world.run_for(timedelta(seconds=10))
        most = max(most, sum(bool(c["metadata"].get("deletionTimestamp")) for c in world.claims()))
    assert 1 <= most <= len(launched) // 10
    assert_no_failures(world)
