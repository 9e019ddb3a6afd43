"""The function dies at any of its calls, or hears the same from two messages at once: each machine is replaced once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from infra import function_sizes
from local.faults import Fault
from local.world import World
from local.world.world import Options
from tests.e2e.interruptions.rig import (
    SPOT,
    deployment,
    event,
    fill,
    interruptions,
    nothing_went_wrong,
    send,
    small_nodes,
)

PODS = 4
MUST_BE_CUT = {
    "dynamodb BatchWriteItem",
    "ec2 CreateFleet",
    "kubernetes DELETE nodeclaims/NAME",
    "kubernetes PATCH nodeclaims/NAME",
    "kubernetes PATCH nodes/NAME",
    "kubernetes POST nodeclaims",
    "kubernetes PATCH nodeclaims/NAME/status",
    "sqs SendMessage",
}


def claimed(world: World) -> list[str]:
    """The instances that claims have."""
    return sorted(c.get("status", {}).get("providerID", "").rsplit("/", 1)[-1] for c in world.claims())


def all_is_well(world: World) -> None:
    """As many pods as ever run, on machines that each have one claim and one node."""
    assert len(world.pods(phase="Running")) == PODS
    assert claimed(world) == sorted(i.id for i in world.instances())
    assert sorted(c["status"]["nodeName"] for c in world.claims()) == sorted(
        n["metadata"]["name"] for n in world.nodes()
    )


@pytest.mark.long
def test_the_node_is_replaced_without_leftovers_wherever_the_function_crashes(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", PODS)])
    fill(world, PODS)
    cuts = world.faults.crash_around_each_write("interruption")
    wanted = {(call, when) for call in MUST_BE_CUT for when in ("before", "after")}
    for _ in range(20):
        warned = world.clock.now()
        taken = world.instances()[0].id
        world.interrupt_spot([taken])

        def given_back(taken: str = taken) -> bool:
            return taken not in claimed(world)

        world.run_until(given_back, limit=timedelta(minutes=15))
        world.run_until_idle(limit=timedelta(hours=1))
        all_is_well(world)
        # Two at first; a replacement each time and, where the launch was cut off, none besides.
        launched = [h for h in world.timeline.of("claim launched") if h.at >= warned]
        assert 1 <= len(launched) <= 2
        if wanted <= cuts.tried and not cuts.remaining:
            break
    assert wanted <= cuts.tried
    assert not cuts.remaining


@pytest.mark.parametrize("slow", ["", "leases"])
def test_concurrent_invocations_about_one_instance_replace_it_once(slow: str) -> None:
    with World(cluster="demo", options=Options(concurrency=3)) as world:
        small_nodes(world)
        world.apply([deployment("web", 2)])
        fill(world, 2)
        (instance,) = world.instances()
        before = {c["metadata"]["name"] for c in world.claims()}
        if slow:
            # Whoever comes first to such a write waits there, so that the other overtakes.
            world.faults.inject_kubernetes("PATCH", slow, Fault(delay=0.3))
        warned = world.clock.now()
        warning = event(world, SPOT, {"instance-id": instance.id})
        # Two full batches, which are handed over at once.
        send(world, *[warning] * 2 * function_sizes.QUEUES[function_sizes.INTERRUPTION].batch)
        world.run_until(lambda: instance.id not in {i.id for i in world.instances()}, limit=timedelta(minutes=3))
        world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))
        first, second, *_ = sorted((i for i in interruptions(world) if i.at >= warned), key=lambda i: i.at)
        assert second.at < first.at + timedelta(seconds=first.latency)
        created = {h.name for h in world.timeline.of("claim created") if h.at >= warned} - before
        assert len(created) == 1
        assert len(world.instances()) == 1
        nothing_went_wrong(world)
        assert world.dead_letters() == []
