"""A drain that something holds goes on within seconds of being freed, and costs next to nothing while it waits."""

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

WITHIN = timedelta(seconds=10)
FALLBACK = timedelta(minutes=15)
"""SQS keeps no message back for longer."""
AHEAD = timedelta(seconds=45)
PROTECTED = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}


def budget(least: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "inflate", "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "inflate"}}},
    }


def a_pod(world: World) -> str:
    """One pod on one node; the pod's name."""
    world.scale("default", "inflate", 1)
    world.run_until_idle()
    (pod,) = world.pods(phase="Running")
    return str(pod["metadata"]["name"])


def drain(world: World) -> None:
    """The pod's machine is given up, and held for so long that the drain's next look is far ahead."""
    (claim,) = world.claims()
    name, kind = claim["metadata"]["name"], world.store.kind("karpenter.sh/v1", "NodeClaim")
    world.store.delete(kind, name)

    def sleeps() -> bool:
        next_look = requeue.requeue_at(world.store.get(kind, name)["metadata"]["annotations"])
        return next_look is not None and next_look - world.clock.now() > AHEAD

    world.run_until(sleeps)


def leaves(world: World, pod: str, *, limit: timedelta) -> datetime:
    """When the pod begins to leave, or is gone."""

    def going() -> bool:
        found = world.store.find(kinds.PODS, pod, namespace="default")
        return found is None or "deletionTimestamp" in found["metadata"]

    assert not going()
    world.run_until(going, limit=limit)
    return world.clock.now()


def looks(world: World, since: datetime) -> int:
    """Invocations of termination since a moment."""
    return sum(i.function == "termination" and i.at >= since for i in world.aws.functions.invocations)


def room(world: World, allowed: int) -> None:
    """The budget's status says so many disruptions, whatever its pods are."""
    status = {"status": {"disruptionsAllowed": allowed}}
    world.store.patch(kinds.POD_DISRUPTION_BUDGETS, "inflate", status, namespace="default", subresource="status")


def told(world: World, reason: str) -> Counter[str]:
    """Events of that reason: how often each object's was told."""
    found = Counter[str]()
    for event in world.store.list(kinds.EVENTS):
        if event["reason"] == reason:
            found[event["involvedObject"]["name"]] += event["count"]
    return found


FREEING: dict[str, Callable[[World], object]] = {
    "the budget has room": lambda world: room(world, 1),
    "the budget asks for less": lambda world: world.apply(budget(0)),
}


@pytest.mark.parametrize("free", FREEING.values(), ids=FREEING)
def test_a_budget_that_lets_a_pod_go_has_it_evicted_within_ten_seconds(
    spot_default: World, free: Callable[[World], object]
) -> None:
    world = spot_default
    pod = a_pod(world)
    world.apply(budget(1))
    drain(world)
    freed = world.clock.now()
    free(world)
    assert leaves(world, pod, limit=FALLBACK) - freed <= WITHIN
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == len(world.nodes()) == 1
    assert world.dead_letters() == []
    assert world.failures() == []


def test_a_replica_that_turns_ready_elsewhere_lets_the_first_one_go_within_ten_seconds(spot_default: World) -> None:
    world = spot_default
    pod = a_pod(world)
    world.apply(budget(1))
    drain(world)
    since = len(world.timeline.all)
    world.scale("default", "inflate", 2)
    at = leaves(world, pod, limit=FALLBACK)
    running = next(h for h in world.timeline.all[since:] if h.type == "pod running")
    assert at - running.at <= WITHIN
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == 2


def test_a_pod_that_loses_its_protection_is_evicted_within_ten_seconds(spot_default: World) -> None:
    world = spot_default
    pod = a_pod(world)
    world.store.patch(kinds.PODS, pod, PROTECTED, namespace="default")
    drain(world)
    freed = world.clock.now()
    off = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}}
    world.store.patch(kinds.PODS, pod, off, namespace="default")
    assert leaves(world, pod, limit=FALLBACK) - freed <= WITHIN


def test_a_machine_goes_within_seconds_of_the_end_of_its_last_protected_pod(spot_default: World) -> None:
    world = spot_default
    pod = a_pod(world)
    world.store.patch(kinds.PODS, pod, PROTECTED, namespace="default")
    drain(world)
    old = world.instances()[0].id
    ended = world.clock.now()
    world.store.patch(kinds.PODS, pod, {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status")
    world.run_until(lambda: old not in [i.id for i in world.instances()], limit=FALLBACK)
    assert world.clock.now() - ended <= WITHIN


def test_a_budget_that_changes_a_hundred_times_a_minute_in_vain_costs_a_few_looks(spot_default: World) -> None:
    world = spot_default
    pod = a_pod(world)
    world.apply(budget(1))
    drain(world)
    began = world.clock.now()
    for _ in range(1000):
        room(world, 1)
        room(world, 0)
        world.run_for(timedelta(seconds=0.6))
    ended = world.clock.now()
    assert ended - began < timedelta(minutes=12)
    # told with pauses of 5, 10, 20, 40 s and then a minute; the rest are the drain's own looks
    assert 3 <= world.relay.sent["Drains Unblocked"] <= 15
    assert looks(world, began) <= 30
    assert set(told(world, "FailedDraining").values()) == {1}
    room(world, 1)
    assert leaves(world, pod, limit=FALLBACK) - ended <= timedelta(seconds=70)


def test_without_the_relays_word_the_drains_own_look_ends_it(spot_default: World) -> None:
    world = spot_default
    pod = a_pod(world)
    world.apply(budget(1))
    drain(world)
    world.faults.inject_aws("eventbridge", "PutEvents", Fault(code="ThrottlingException", status=400), times=100_000)
    freed = world.clock.now()
    world.apply(budget(0))
    at = leaves(world, pod, limit=FALLBACK)
    assert WITHIN < at - freed <= FALLBACK
    assert world.relay.sent["Drains Unblocked"] == 0
