"""EC2 interrupts an instance: its pods run elsewhere in time, whatever other messages are in the queue."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import boto3
import pytest

from local.kubelets.behavior import Timing
from local.kubernetes import kinds
from local.world import World
from local.world.options import Options
from local.world.sample_objects import budget
from tests.e2e.interruptions.environment import (
    RESERVED,
    SPOT,
    STATE,
    assert_no_failures,
    claim_annotations,
    decisions_about,
    deployment,
    event,
    fill,
    instance_of,
    is_deleting,
    launches,
    send,
    since,
    small_nodes,
)


@pytest.mark.flow
def test_pods_that_fit_are_evicted_at_once_and_the_others_when_their_replacement_has_registered(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.apply([deployment("web", 3)])
    fill(world, 3)
    (full,) = (n["metadata"]["name"] for n in world.nodes() if len(world.pods(node=n["metadata"]["name"])) == 2)
    warned = world.clock.now()
    world.interrupt_spot([instance_of(world, full)])
    world.run_until(lambda: len(world.pods(phase="Running")) == 3 and not world.pods(node=full))
    left = sorted(since(warned, h) for h in world.timeline.of("pod terminating") if h.at >= warned)
    (joined,) = (since(warned, h) for h in world.timeline.of("node registered") if h.at >= warned)
    (ready,) = (since(warned, h) for h in world.timeline.of("node ready") if h.at >= warned)
    assert len(left) == 2
    assert left[0] <= 10
    assert joined <= left[1] <= ready + 2
    (decision,) = decisions_about(world, full)
    assert (decision.outcome, decision.reason) == ("taken", "Interrupted")
    assert decision.why.startswith("EC2 interrupts spot instance i-")
    *first, replacement = launches(world)
    assert 0 < replacement.before < sum(record.bought for record in first)  # without the node that goes
    assert_no_failures(world)


def test_pods_with_a_long_grace_period_are_evicted_at_once_and_get_the_time_until_the_deadline() -> None:
    with World(cluster="demo", options=Options(timing=Timing(stop=(200.0, 200.0)))) as world:
        small_nodes(world)
        world.apply([deployment("patient", 1, grace=300), deployment("web", 1)])
        fill(world, 2)
        (node,) = world.nodes()
        warned = world.clock.now()
        world.interrupt_spot([i.id for i in world.instances()])
        world.run_for(timedelta(seconds=20))
        graces = {
            p["metadata"]["labels"]["app"]: p["metadata"]["deletionGracePeriodSeconds"]
            for p in world.pods(node=node["metadata"]["name"])
            if p["metadata"].get("deletionTimestamp")
        }
        assert graces.keys() == {"patient"}
        assert 85 <= graces["patient"] <= 105
        world.run_until(lambda: not world.pods(node=node["metadata"]["name"]), limit=timedelta(minutes=3))
        gone = {h.name.split("-")[0]: since(warned, h) for h in world.timeline.of("pod deleted") if h.at >= warned}
        assert 100 <= gone["default/patient"] <= 110
        assert gone["default/web"] <= 110
        world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))


def test_malformed_and_irrelevant_events_raise_no_exception(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    send(
        world,
        event(world, SPOT, {}),
        event(world, "EC2 Spot Instance Something Else", {"instance-id": instance.id}),
        '{"detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2"}',
        event(world, SPOT, {"instance-id": "i-0123456789abcdef0"}),
        event(world, SPOT, {"instance-id": instance.id}, ago=400),
        event(world, STATE, {"instance-id": instance.id, "state": "terminated"}, ago=1000),
        event(world, STATE, {"instance-id": instance.id, "state": "running"}),
    )
    world.run_for(timedelta(minutes=3))
    assert [i.id for i in world.instances()] == [instance.id]
    reasons = [letter.attributes["reason"] for letter in world.dead_letters() if "nterruption" in letter.queue]
    assert len(reasons) == 3
    assert any("instance-id" in r for r in reasons)
    assert any("Something Else" in r for r in reasons)
    assert_no_failures(world)


def test_drains_start_while_the_lease_is_held_and_replacements_follow(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (node,) = world.nodes()
    lease = world.store.find(kinds.LEASES, "tenon-demo", namespace="kube-system")
    assert lease is not None
    held = {
        "holderIdentity": "disruption/other",
        "leaseDurationSeconds": 15,
        "renewTime": world.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    world.store.patch(kinds.LEASES, "tenon-demo", {"spec": held}, namespace="kube-system", patch_type="merge")
    warned = world.clock.now()
    world.interrupt_spot([i.id for i in world.instances()])
    world.run_until(lambda: is_deleting(world, node["metadata"]["name"]), limit=timedelta(seconds=5))
    world.run_until(
        lambda: not world.pods(node=node["metadata"]["name"]) and len(world.pods(phase="Running")) == 2,
        limit=timedelta(minutes=3),
    )
    created = [since(warned, h) for h in world.timeline.of("claim created") if h.at >= warned]
    assert 10 <= min(created) <= 40
    assert_no_failures(world)
    assert world.dead_letters() == []


@pytest.mark.flow
def test_an_instance_that_was_terminated_externally_is_removed_at_once(quiet_world: World) -> None:
    world = quiet_world
    world.apply([budget("held", 0), deployment("held", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    (node,) = world.nodes()
    boto3.client("ec2", region_name=world.region).terminate_instances(InstanceIds=[instance.id])
    world.run_until(
        lambda: node["metadata"]["name"] not in {n["metadata"]["name"] for n in world.nodes()},
        limit=timedelta(seconds=37) + world.aws.instances.stop_duration,
    )
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))


@pytest.mark.flow
def test_an_instance_of_a_reclaimed_reservation_is_drained_by_the_stated_time(
    world: World,
) -> None:
    reservation = world.aws.reservations.add("m5.large", "us-east-1a", total=2, now=world.clock.now())
    small_nodes(world, capacity_types=["reserved", "on-demand"], reservation=reservation)
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    (node,) = (n["metadata"]["name"] for n in world.nodes())
    warned = world.clock.now()
    ends = warned + timedelta(minutes=10)
    detail = {"instance-id": instance.id, "instance-termination-time": ends.isoformat(), "state": "running"}
    send(world, event(world, RESERVED, detail))
    world.run_until(lambda: is_deleting(world, node), limit=timedelta(seconds=10))
    deadline = datetime.fromisoformat(claim_annotations(world, node)["karpenter.sh/nodeclaim-termination-timestamp"])
    assert deadline == ends - timedelta(seconds=15)
    world.run_until(lambda: instance.id not in {i.id for i in world.instances()}, limit=timedelta(minutes=3))
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))
    (reason,) = {
        e["reason"]
        for e in world.store.list(kinds.EVENTS)
        if e["involvedObject"]["kind"] == "NodeClaim" and e["type"] == "Warning"
    }
    assert reason == "CapacityReservationInterrupted"
    assert_no_failures(world)


def test_the_deployed_rules_match_the_samples_and_not_similar_events(quiet_world: World) -> None:
    world = quiet_world
    bus = boto3.client("events", region_name=world.region)
    wanted = [
        ("aws.ec2", SPOT, {"instance-id": "i-1", "instance-action": "terminate"}),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"}),
        ("aws.ec2", STATE, {"instance-id": "i-1", "state": "stopping"}),
        ("aws.ec2", RESERVED, {"instance-id": "i-1"}),
        ("aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "scheduledChange"}),
    ]
    unmatched = [
        ("aws.ec2", STATE, {"instance-id": "i-1", "state": "running"}),
        ("aws.ec2", "EC2 Spot Instance Request Fulfillment", {"instance-id": "i-1"}),
        ("aws.health", "AWS Health Event", {"service": "RDS", "eventTypeCategory": "scheduledChange"}),
        ("aws.health", "AWS Health Event", {"service": "EC2", "eventTypeCategory": "issue"}),
        ("my.app", SPOT, {"instance-id": "i-1"}),
    ]
    before = len(world.aws.event_buses.deliveries)
    for source, about, detail in [*wanted, *unmatched]:
        bus.put_events(Entries=[{"Source": source, "DetailType": about, "Detail": json.dumps(detail)}])
    came = [d for d in world.aws.event_buses.deliveries[before:] if "nterruption" in d.target_arn]
    assert [(d.event["source"], d.event["detail-type"], d.event["detail"]) for d in came] == wanted
