"""Pending pods become nodes, and empty nodes go: the manifests that users of the old kinds really apply."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.faults import Action
from local.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST = Path(__file__).parent / "manifests" / "spot-default.yaml"
MINUTES = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=7) as world:
        world.apply(MANIFEST)
        yield world


def running(world: World, count: int, *, limit: timedelta = 5 * MINUTES) -> None:
    world.scale("default", "inflate", count)
    world.run_until(lambda: len(world.pods(phase="Running")) == count, limit=limit)


def test_five_pods_get_spot_nodes_and_the_nodes_go_when_they_are_empty(world: World) -> None:
    running(world, 5)
    assert {instance.lifecycle for instance in world.instances()} == {"spot"}
    assert len(world.instances()) == len(world.nodes("default")) == len(world.claims())
    assert len(world.aws.fleets.calls) == 1

    world.scale("default", "inflate", 0)
    emptied = world.clock.now()
    world.run_until(lambda: not world.claims() and not world.nodes() and not world.instances(), limit=5 * MINUTES)
    leaving = [happening.at for happening in world.events.of("claim leaving")]
    assert all(at - emptied >= timedelta(seconds=30) for at in leaving)

    world.run_until_rest()
    assert world.failures() == []
    assert world.dead_letters() == []


def test_a_run_delivered_twice_launches_nothing_twice(world: World) -> None:
    running(world, 5)
    launched = len(world.aws.instances.all)
    assert world.redeliver() > 0
    world.run_until_rest()
    assert len(world.aws.instances.all) == launched
    assert len(world.pods(phase="Running")) == 5
    assert world.failures() == []


def test_garbage_on_a_queue_is_dead_lettered_with_its_reason_and_stops_nothing(world: World) -> None:
    world.send_garbage("provisioning")
    running(world, 2)
    (letter,) = world.dead_letters()
    assert letter.body == "{not a hint"
    assert letter.attributes["reason"]


def test_a_provisioner_that_dies_after_its_fleet_call_loses_no_instance(world: World) -> None:
    world.faults.call("ec2", "CreateFleet", Action(crash="after"), caller="provisioner")
    # The message comes back when its visibility timeout is over.
    running(world, 5, limit=15 * MINUTES)
    world.run_until_rest()
    failed = [record.error for record in world.aws.functions.invocations if not record.ok]
    assert failed == ["Crash: after ec2 CreateFleet"]
    assert len(world.aws.instances.all) == len(world.claims()) == len(world.nodes("default"))


def test_a_spot_warning_moves_the_pods_before_the_machine_is_taken(world: World) -> None:
    running(world, 5)
    taken = world.instances()[0].id
    world.interrupt_spot([taken])
    world.run_until(
        lambda: (
            taken not in {instance.id for instance in world.instances()}
            and len(world.pods(phase="Running")) == 5
            and not world.pending()
        ),
        limit=10 * MINUTES,
    )
    assert world.failures() == []
