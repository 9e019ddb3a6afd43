"""A function that crashes at any call about standby nodes, and an EC2 that answers late and in part."""

from __future__ import annotations

import pytest

from local.world import World, sample_objects
from local.world.hostility import Hostility
from local.world.options import Options
from tests.e2e.test_standby_nodes import MINUTE, STOPPED, TIMING, TYPE, BoundPods, instances, pool, states, web
from tests.e2e.world_state import running

LONG = 60 * MINUTE
COUNT = 2


def run_once(world: World) -> None:
    """Start the stopped nodes for pods, wait until others are stopped, and remove the pods."""
    world.run_until(lambda: states(world)[STOPPED] == COUNT and set(states(world)) <= {"", STOPPED}, limit=LONG)
    world.scale("default", "web", COUNT)
    world.run_until(lambda: len(running(world, "web")) == COUNT, limit=LONG)
    world.scale("default", "web", 0)
    world.run_until(lambda: states(world) == {STOPPED: COUNT} and instances(world) == {STOPPED: COUNT}, limit=LONG)
    claimed = sorted(c["status"]["providerID"].rsplit("/", 1)[-1] for c in world.claims())
    assert claimed == sorted(i.id for i in world.aws.instances.all if i.state == STOPPED)


def prepare(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    world.apply(pool(f"{COUNT} {TYPE}"))
    world.apply(sample_objects.daemon_set("logs", {"cpu": "50m"}))
    world.apply(web(0))


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "required_calls"),
    [
        ("provisioner", {"ec2 StartInstances", "kubernetes PATCH nodeclaims/NAME", "kubernetes POST nodeclaims"}),
        ("lifecycle", {"ec2 StopInstances", "kubernetes PATCH nodeclaims/NAME", "kubernetes PATCH nodes/NAME"}),
    ],
)
def test_a_crash_between_any_two_calls_buys_nothing_twice_and_leaves_nothing_behind(
    function: str, required_calls: set[str]
) -> None:
    with World(cluster="demo", options=Options(context={"standby": "on"}, timing=TIMING, hostility=None)) as world:
        crashes = world.faults.crash_around_each_write(function)
        prepare(world)
        for number in range(3):
            run_once(world)
            # Each run uses the stopped ones and buys as many, whatever crashed.
            assert len(world.aws.instances.all) == COUNT * (number + 2)
        assert {(call, when) for call in required_calls for when in ("before", "after")} <= crashes.tried


@pytest.mark.long
def test_it_holds_with_an_ec2_that_answers_late_and_in_part() -> None:
    with World(cluster="demo", options=Options(context={"standby": "on"}, hostility=Hostility())) as world:
        bound = BoundPods(world)
        prepare(world)
        for _ in range(2):
            run_once(world)
        assert bound.on_standby == []
        assert world.dead_letters() == []
