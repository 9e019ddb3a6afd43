"""Blocked drains continue within seconds of being unblocked, and cost few invocations while they wait."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.faults import Fault
from local.kubernetes import kinds
from shared.termination import requeue

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from local.world import World

UNBLOCK_LIMIT = timedelta(seconds=10)
REQUEUE_LIMIT = timedelta(minutes=15)
"""SQS delays a message by at most this."""
MIN_WAIT = timedelta(seconds=45)
PROTECTED = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}


def budget(min_available: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "inflate", "namespace": "default"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": "inflate"}}},
    }


def run_one_pod(world: World) -> str:
    """One pod on one node; the pod's name."""
    world.scale("default", "inflate", 1)
    world.run_until_idle()
    (pod,) = world.pods(phase="Running")
    return str(pod["metadata"]["name"])


def begin_blocked_drain(world: World) -> None:
    """Delete the pod's NodeClaim, and wait until its blocked drain is requeued far ahead."""
    (claim,) = world.claims()
    name, kind = claim["metadata"]["name"], world.store.kind("karpenter.sh/v1", "NodeClaim")
    world.store.delete(kind, name)

    def is_requeued_far_ahead() -> bool:
        requeue_at = requeue.requeue_at(world.store.get(kind, name)["metadata"]["annotations"])
        return requeue_at is not None and requeue_at - world.clock.now() > MIN_WAIT

    world.run_until(is_requeued_far_ahead)


def terminates(world: World, pod: str, *, limit: timedelta) -> datetime:
    """When the pod is deleted."""

    def is_deleted() -> bool:
        stored = world.store.find(kinds.PODS, pod, namespace="default")
        return stored is None or "deletionTimestamp" in stored["metadata"]

    assert not is_deleted()
    world.run_until(is_deleted, limit=limit)
    return world.clock.now()


def termination_invocations(world: World, since: datetime) -> int:
    """Invocations of the termination function since a moment."""
    return sum(i.function == "termination" and i.at >= since for i in world.aws.functions.invocations)


def set_disruptions_allowed(world: World, allowed: int) -> None:
    """Write the budget's status, whatever its pods are."""
    status = {"status": {"disruptionsAllowed": allowed}}
    world.store.patch(kinds.POD_DISRUPTION_BUDGETS, "inflate", status, namespace="default", subresource="status")


def event_counts(world: World, reason: str) -> Counter[str]:
    """Events of that reason: the count of each object's."""
    counts = Counter[str]()
    for event in world.store.list(kinds.EVENTS):
        if event["reason"] == reason:
            counts[event["involvedObject"]["name"]] += event["count"]
    return counts


UNBLOCKING: dict[str, Callable[[World], object]] = {
    "the budget allows a disruption": lambda world: set_disruptions_allowed(world, 1),
    "the budget requires fewer pods": lambda world: world.apply(budget(0)),
}


@pytest.mark.parametrize("unblock", UNBLOCKING.values(), ids=UNBLOCKING)
def test_a_pod_is_evicted_within_ten_seconds_of_its_budget_allowing_it(
    spot_default: World, unblock: Callable[[World], object]
) -> None:
    world = spot_default
    pod = run_one_pod(world)
    world.apply(budget(1))
    begin_blocked_drain(world)
    unblocked_at = world.clock.now()
    unblock(world)
    assert terminates(world, pod, limit=REQUEUE_LIMIT) - unblocked_at <= UNBLOCK_LIMIT
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == len(world.nodes()) == 1
    assert world.dead_letters() == []
    assert world.failures() == []


def test_a_pod_is_evicted_within_ten_seconds_of_another_replica_running(spot_default: World) -> None:
    world = spot_default
    pod = run_one_pod(world)
    world.apply(budget(1))
    begin_blocked_drain(world)
    since = len(world.timeline.all)
    world.scale("default", "inflate", 2)
    at = terminates(world, pod, limit=REQUEUE_LIMIT)
    running = next(entry for entry in world.timeline.all[since:] if entry.type == "pod running")
    assert at - running.at <= UNBLOCK_LIMIT
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == 2


@pytest.mark.flow
def test_a_pod_is_evicted_within_ten_seconds_of_losing_its_do_not_disrupt_annotation(spot_default: World) -> None:
    world = spot_default
    pod = run_one_pod(world)
    world.store.patch(kinds.PODS, pod, PROTECTED, namespace="default")
    begin_blocked_drain(world)
    unblocked_at = world.clock.now()
    removal = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}}
    world.store.patch(kinds.PODS, pod, removal, namespace="default")
    assert terminates(world, pod, limit=REQUEUE_LIMIT) - unblocked_at <= UNBLOCK_LIMIT


def test_an_instance_is_terminated_within_ten_seconds_of_its_last_pod_completing(
    spot_default: World,
) -> None:
    world = spot_default
    pod = run_one_pod(world)
    world.store.patch(kinds.PODS, pod, PROTECTED, namespace="default")
    begin_blocked_drain(world)
    old = world.instances()[0].id
    ended = world.clock.now()
    world.store.patch(kinds.PODS, pod, {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status")
    world.run_until(lambda: old not in [i.id for i in world.instances()], limit=REQUEUE_LIMIT)
    assert world.clock.now() - ended <= UNBLOCK_LIMIT


def test_a_budget_that_flaps_a_hundred_times_a_minute_costs_few_invocations(spot_default: World) -> None:
    world = spot_default
    pod = run_one_pod(world)
    world.apply(budget(1))
    begin_blocked_drain(world)
    started = world.clock.now()
    for _ in range(1000):
        set_disruptions_allowed(world, 1)
        set_disruptions_allowed(world, 0)
        world.run_for(timedelta(seconds=0.6))
    ended = world.clock.now()
    assert ended - started < timedelta(minutes=12)
    # sent at intervals of 5, 10, 20, 40 s and then a minute; the other invocations are the drain's own requeues
    assert world.relay is not None
    assert 3 <= world.relay.sent["Drains Unblocked"] <= 15
    assert termination_invocations(world, started) <= 30
    assert set(event_counts(world, "FailedDraining").values()) == {1}
    set_disruptions_allowed(world, 1)
    assert terminates(world, pod, limit=REQUEUE_LIMIT) - ended <= timedelta(seconds=70)


@pytest.mark.long
def test_without_the_relays_message_the_drains_own_requeue_continues_it(spot_default: World) -> None:
    world = spot_default
    pod = run_one_pod(world)
    world.apply(budget(1))
    begin_blocked_drain(world)
    world.faults.inject_aws("eventbridge", "PutEvents", Fault(code="ThrottlingException", status=400), times=100_000)
    unblocked_at = world.clock.now()
    world.apply(budget(0))
    at = terminates(world, pod, limit=REQUEUE_LIMIT)
    assert UNBLOCK_LIMIT < at - unblocked_at <= REQUEUE_LIMIT
    assert world.relay is not None
    assert world.relay.sent["Drains Unblocked"] == 0
