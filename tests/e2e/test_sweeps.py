"""The sweeps of each minute: one that meets the lease held is retried."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.faults import Fault
from local.kubernetes import kinds
from local.world import sample_objects
from shared.cluster.lease import micro_time

if TYPE_CHECKING:
    from local.aws.invocation import Invocation
    from local.world import World

MINUTE = timedelta(minutes=1)
LEASE = "tenon-demo"


def sweeps(world: World, function: str) -> list[Invocation]:
    """The invocations of a function for its schedule, or for the requeue of one."""
    texts = ("aws.events", '"sweep"')
    return [
        i
        for i in world.aws.functions.invocations
        if i.function == function and any(text in str(i.event).replace("'", '"') for text in texts)
    ]


def decisions(world: World) -> list[Invocation]:
    """The sweeps of disruption, and their retries."""
    return sweeps(world, "disruption")


def hold_lease(world: World, seconds: float) -> None:
    """Another function decides for that long from now on."""
    spec = {
        "holderIdentity": "provisioner/test",
        "leaseDurationSeconds": int(seconds),
        "renewTime": micro_time(world.clock.now()),
    }
    world.store.patch(kinds.LEASES, LEASE, {"spec": spec}, namespace="kube-system")


def start(world: World) -> None:
    requirements = {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["2"]}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(requirements)])
    world.apply(sample_objects.deployment("web", 1, {"cpu": "1"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1)


def test_a_sweep_of_disruption_begins_at_once_and_without_a_message_while_the_lease_is_free(world: World) -> None:
    start(world)
    world.run_for(2 * MINUTE)
    before = len(decisions(world))
    world.run_for(5 * MINUTE)
    swept = decisions(world)[before:]
    assert len(swept) == 5
    assert not [i for i in swept if "Records" in i.event]
    assert not [line for i in swept for line in i.logs if line["message"] == "Waiting for the lease"]


@pytest.mark.parametrize("forged", [{"renewTime": "2126-11-21T00:00:00.000000Z"}, {"leaseDurationSeconds": 2**31 - 1}])
def test_leases_that_are_held_for_years_stop_nothing_for_more_than_two_minutes(
    world: World, forged: dict[str, object]
) -> None:
    start(world)
    spec = {"holderIdentity": "mallory", "renewTime": micro_time(world.clock.now()), **forged}
    for name in (LEASE, f"{LEASE}-lifecycle"):
        world.store.patch(kinds.LEASES, name, {"spec": spec}, namespace="kube-system")
    world.scale("default", "web", 3)
    world.run_until(lambda: len(world.pods(phase="Running")) == 3, limit=timedelta(minutes=4))
    reasons = [e["reason"] for e in world.store.list(kinds.EVENTS) if e["involvedObject"]["kind"] == "Lease"]
    assert "LeaseImplausible" in reasons


def test_a_sweep_that_meets_the_lease_held_is_retried_within_seconds(world: World) -> None:
    start(world)
    before = len(decisions(world))
    world.run_until(lambda: len(decisions(world)) > before)  # a minute until the next
    world.run_for(MINUTE - timedelta(seconds=5))
    before = len(decisions(world))
    hold_lease(world, 15)
    released = world.clock.now() + timedelta(seconds=15)
    world.run_until(lambda: world.clock.now() > released)
    waited = [
        i for i in decisions(world)[before:] if any(line["message"] == "Waiting for the lease" for line in i.logs)
    ]
    assert waited, "the sweep met the lease held"
    world.run_for(timedelta(seconds=20))
    after = [i for i in decisions(world)[before:] if i not in waited]
    assert after
    assert after[0].at - released <= timedelta(seconds=16)
    assert world.failures() == []


def test_retries_of_sweeps_do_not_accumulate_while_the_lease_is_held(world: World) -> None:
    start(world)
    before = len(decisions(world))
    for _ in range(10):
        hold_lease(world, 90)
        world.run_for(MINUTE)
    assert sum("Records" in i.event for i in decisions(world)[before:]) <= 10 * 5
    assert [letter for letter in world.dead_letters() if "disruption" in letter.queue] == []
    world.run_for(2 * MINUTE)
    waiting = len(decisions(world))
    world.run_for(5 * MINUTE)
    assert len(decisions(world)) - waiting <= 6


def test_messages_that_meet_the_lease_held_for_minutes_are_left_to_the_sweeps(world: World) -> None:
    start(world)
    for minute in range(5):
        hold_lease(world, 90)
        if minute == 1:
            world.scale("default", "web", 0)
        world.run_for(MINUTE)
    assert [letter for letter in world.dead_letters() if "disruption" in letter.queue] == []
    world.run_until(lambda: not world.nodes(), limit=4 * MINUTE)


def test_a_sweep_with_nothing_to_provision_needs_no_lease(world: World) -> None:
    start(world)
    world.run_for(2 * MINUTE)
    hold_lease(world, 240)
    before = len(sweeps(world, "provisioner"))
    world.run_for(3 * MINUTE)
    idle = sweeps(world, "provisioner")[before:]
    assert len(idle) == 3, "none is tried again"
    assert not [line for sweep in idle for line in sweep.logs if line["message"] == "Waiting for the lease"]


@pytest.mark.flow
def test_a_sweep_sees_a_pod_whose_hint_is_lost(world: World) -> None:
    start(world)
    world.run_for(2 * MINUTE)
    world.faults.inject_aws("eventbridge", "PutEvents", Fault(code="AccessDeniedException", status=400), times=100_000)
    world.apply(sample_objects.deployment("more", 1, {"cpu": "1"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=3 * MINUTE)
    world.faults.clear()
