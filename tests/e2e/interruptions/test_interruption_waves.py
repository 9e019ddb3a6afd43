"""Half a cluster is interrupted in one second, and thousands of messages arrive at once."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world.sample_objects import budget
from tests.e2e.interruptions.environment import (
    GRACE,
    SPOT,
    STATE,
    HealthyPods,
    assert_no_failures,
    deployment,
    event,
    fill,
    interruptions,
    nodes_of,
    send,
    since,
)

if TYPE_CHECKING:
    from datetime import datetime

    from local.world import World
    from local.world.timeline import TimelineEvent


def pod_times(events: list[TimelineEvent], kind: str, warned: datetime) -> dict[str, float]:
    """By pod: seconds from the warning to the event of that kind."""
    return {h.name.removeprefix("default/"): since(warned, h) for h in events if h.type == kind}


def assert_launched_soon(events: list[TimelineEvent], warned: datetime, calls: int) -> None:
    """All replacements are launched within 15 s, by at most 20 calls; each call is on the timeline."""
    fleet_calls = [since(warned, h) for h in events if h.type == "call" and h.name == "ec2 CreateFleet"]
    assert fleet_calls
    assert len(fleet_calls) <= 20
    assert max(fleet_calls) <= 15
    assert calls == len(fleet_calls)


def storm(world: World, ours: list[str]) -> list[str]:
    """Ten thousand messages in any order: foreign instances', our own 16 times, malformed ones, and duplicates."""
    rng = random.Random(0)  # noqa: S311 - a test's
    foreign = [
        event(world, kind, {"instance-id": f"i-{rng.getrandbits(64):016x}", "state": "terminated"})
        for kind in rng.choices([SPOT, STATE], k=8480)
    ]
    own = [event(world, SPOT, {"instance-id": i}) for i in ours] * 16
    malformed = [rng.choice(["{", "[]", "null", "{}", '{"source": "aws.ec2"}']) for _ in range(200)]
    messages = [*foreign, *own, *malformed, *rng.choices(foreign, k=1000)]
    rng.shuffle(messages)
    return messages


@pytest.mark.long
def test_two_hundred_of_four_hundred_nodes_interrupted_in_one_second_are_drained_in_time(
    world_alone: World,
) -> None:
    world = world_alone
    world.apply([budget("guarded", "10%"), budget("held", 0)])
    world.apply([deployment("web", 720), deployment("guarded", 40), deployment("held", 40)])
    fill(world, 800)
    assert len(world.nodes()) == 400
    interrupted_ids = {i.id for i in world.instances()[::2]}
    nodes = nodes_of(world, interrupted_ids)
    held = {p["metadata"]["name"] for p in world.pods() if p["metadata"]["name"].startswith("held")}
    pods_on_nodes = {p["metadata"]["name"] for p in world.pods() if p["spec"]["nodeName"] in nodes}
    guarded = {name for name in pods_on_nodes if name.startswith("guarded")}
    assert len(held & pods_on_nodes) > 10
    assert len(guarded) > 10
    healthy = HealthyPods(world, {"guarded": 36, "held": 40})
    mark, calls = len(world.timeline.all), world.aws.calls.count()["ec2", "CreateFleet"]
    warned = world.clock.now()
    world.interrupt_spot(sorted(interrupted_ids))
    world.run_until(lambda: world.clock.now() > warned + timedelta(minutes=3))
    events_ = world.timeline.all[mark:]

    tainted = {h.name: since(warned, h) for h in events_ if h.type == "node cordoned" and h.name in nodes}
    assert set(tainted) == nodes
    assert max(tainted.values()) <= 10
    assert_launched_soon(events_, warned, world.aws.calls.count()["ec2", "CreateFleet"] - calls)
    gone = {pod: at for pod, at in pod_times(events_, "pod deleted", warned).items() if pod in pods_on_nodes}
    assert set(gone) == pods_on_nodes
    assert max(gone.values()) <= 110
    # No budget is violated until the deadline leaves the pods that it blocks only their own grace period. A budget that
    # allows disruptions, a few at a time, is never violated.
    last = 105 - GRACE - 1
    assert healthy.states > 100
    assert {app for at, app, _ in healthy.violations if (at - warned).total_seconds() < last} == set()
    assert {app for _, app, _ in healthy.violations} == {"held"}
    leaving = pod_times(events_, "pod terminating", warned)
    assert guarded <= set(leaving)
    assert min(leaving[pod] for pod in held & pods_on_nodes) >= last
    assert not (held - pods_on_nodes) & set(leaving)
    assert len(world.pods(phase="Running")) == 800
    assert_no_failures(world)
    assert world.dead_letters() == []


@pytest.mark.long
def test_ten_thousand_messages_are_handled_and_no_managed_instance_is_missed(world_alone: World) -> None:
    world = world_alone
    world.apply([deployment("web", 40)])
    fill(world, 40)
    ours = [i.id for i in world.instances()]
    assert len(ours) == 20
    messages = storm(world, ours)
    assert len(messages) == 10_000
    began = world.clock.now()
    with world.aws.lock:
        world.aws.instances.reclaim(ours)
    send(world, *messages)
    world.run_until(lambda: world.aws.queues.empty() and not world.aws.functions.running)
    received = [m for m in world.aws.queues.delivered if "nterruption" in m.queue]
    last = max(i.at + timedelta(seconds=i.latency) for i in interruptions(world) if i.at >= began)
    assert last - began < timedelta(minutes=1)
    assert len(received) >= 10_000
    world.run_until(lambda: not {i.id for i in world.instances()} & set(ours), limit=timedelta(minutes=5))
    given_up = Counter(
        line["nodeclaim"] for i in interruptions(world) for line in i.logs if line["message"] == "Draining a node"
    )
    assert len(given_up) == 20
    assert set(given_up.values()) == {1}
    letters = world.dead_letters()
    assert len(letters) == 200
    assert all(letter.attributes["reason"] for letter in letters)
    malformed = sum(
        int(metric.get("tenon_interruption_malformed_total", [0])[0])
        for i in interruptions(world)
        for metric in i.metrics
    )
    assert malformed == 200
    assert_no_failures(world)
    world.run_until(lambda: len(world.pods(phase="Running")) == 40, limit=timedelta(minutes=5))
