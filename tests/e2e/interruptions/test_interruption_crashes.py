"""The function crashes at any of its calls, or handles two messages about an instance concurrently: one replacement."""

from __future__ import annotations

from datetime import timedelta

import pytest

from infra import function_sizes
from local.faults import Fault
from local.world import World
from local.world.options import Options
from tests.e2e.interruptions.environment import (
    SPOT,
    assert_no_failures,
    deployment,
    event,
    fill,
    interruptions,
    send,
    small_nodes,
)

PODS = 4
CRASHED_CALLS = {
    "dynamodb BatchWriteItem",
    "ec2 CreateFleet",
    "kubernetes DELETE nodeclaims/NAME",
    "kubernetes PATCH nodeclaims/NAME",
    "kubernetes PATCH nodes/NAME",
    "kubernetes POST nodeclaims",
    "kubernetes PATCH nodeclaims/NAME/status",
    "sqs SendMessageBatch",
}


def claimed_instances(world: World) -> list[str]:
    """The instance ids of all NodeClaims."""
    return sorted(c.get("status", {}).get("providerID", "").rsplit("/", 1)[-1] for c in world.claims())


def assert_consistent(world: World) -> None:
    """All pods run, and every instance has one NodeClaim and one node."""
    assert len(world.pods(phase="Running")) == PODS
    assert claimed_instances(world) == sorted(i.id for i in world.instances())
    assert sorted(c["status"]["nodeName"] for c in world.claims()) == sorted(
        n["metadata"]["name"] for n in world.nodes()
    )


@pytest.mark.long
def test_the_node_is_replaced_without_leftovers_wherever_the_function_crashes(quiet_world: World) -> None:
    world = quiet_world
    world.apply([deployment("web", PODS)])
    fill(world, PODS)
    crashes = world.faults.crash_around_each_write("interruption")
    wanted = {(call, when) for call in CRASHED_CALLS for when in ("before", "after")}
    for _ in range(20):
        warned = world.clock.now()
        interrupted = world.instances()[0].id
        world.interrupt_spot([interrupted])

        def is_removed(interrupted: str = interrupted) -> bool:
            return interrupted not in claimed_instances(world)

        world.run_until(is_removed, limit=timedelta(minutes=15))
        world.run_until_idle(limit=timedelta(hours=1))
        assert_consistent(world)
        # One or two instances are launched for each interruption, also after a crash during the launch.
        launched = [h for h in world.timeline.of("claim launched") if h.at >= warned]
        assert 1 <= len(launched) <= 2
        if wanted <= crashes.tried and not crashes.remaining:
            break
    assert wanted <= crashes.tried
    assert not crashes.remaining


@pytest.mark.parametrize("slow", ["", "leases"])
def test_concurrent_invocations_about_one_instance_replace_it_once(slow: str) -> None:
    with World(cluster="demo", options=Options(concurrency=3)) as world:
        small_nodes(world)
        world.apply([deployment("web", 2)])
        fill(world, 2)
        (instance,) = world.instances()
        before = {c["metadata"]["name"] for c in world.claims()}
        if slow:
            # The first invocation waits at this write, so that the second one overtakes it.
            world.faults.inject_kubernetes("PATCH", slow, Fault(delay=0.3))
        warned = world.clock.now()
        warning = event(world, SPOT, {"instance-id": instance.id})
        # Two full batches, which are delivered at the same time.
        send(world, *[warning] * 2 * function_sizes.QUEUES[function_sizes.INTERRUPTION].batch)
        world.run_until(lambda: instance.id not in {i.id for i in world.instances()}, limit=timedelta(minutes=3))
        world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=timedelta(minutes=3))
        first, second, *_ = sorted((i for i in interruptions(world) if i.at >= warned), key=lambda i: i.at)
        assert second.at < first.at + timedelta(seconds=first.latency)
        created = {h.name for h in world.timeline.of("claim created") if h.at >= warned} - before
        assert len(created) == 1
        assert len(world.instances()) == 1
        assert_no_failures(world)
        assert world.dead_letters() == []
