"""Capacity blocks: reserved instances of another market type, which EC2 terminates before the block's end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""
TAGS = {"team": "search"}


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def block(world: World, *, total: int, lasts: timedelta, zone: str = "us-east-1a") -> str:
    now = world.clock.now()
    return world.aws.reservations.add(
        "m5.large", zone, total=total, now=now, tags=TAGS, kind="capacity-block", end=now + lasts
    )


def start(world: World, replicas: int, capacity_types: list[str]) -> None:
    """A class that selects the team's reservations, a pool of m5.large, and pods with a node each."""
    requirements = {names.CAPACITY_TYPE: capacity_types, names.INSTANCE_TYPE: ["m5.large"]}
    pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "Never"})
    node_class = sample_objects.node_class(world, capacityReservationSelectorTerms=[{"tags": TAGS}])
    world.apply([node_class, pool, sample_objects.deployment("search", replicas, LARGE)])


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(o["metadata"]["labels"].get("karpenter.k8s.aws/capacity-reservation-type", "") for o in objects)


@pytest.mark.flow
def test_pods_run_in_the_block_and_are_drained_before_ec2_terminates_its_instances(world: World) -> None:
    reservation = block(world, total=2, lasts=90 * MINUTE)
    start(world, 2, ["reserved", "on-demand"])
    world.run_until(lambda: len(running(world)) == 2, limit=5 * MINUTE)
    assert kinds(world.nodes()) == ["capacity-block"] * 2
    (node_class,) = world.store.list(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"))
    (selected,) = node_class["status"]["capacityReservations"]
    assert (selected["reservationType"], selected["state"]) == ("capacity-block", "active")
    in_block = {i.id for i in world.instances()}

    world.run_for(57 * MINUTE)  # EC2 terminates from minute 60

    assert not in_block & {i.id for i in world.instances()}
    assert kinds(world.nodes()) == ["", ""]
    assert len(running(world)) == 2
    messages = [e["message"] for e in events(world, "CapacityBlockEnds")]
    assert len(messages) == 2
    assert all(reservation in message for message in messages)
    assert world.failures() == []


def test_a_block_that_is_full_or_ends_soon_is_not_launched_into(world: World) -> None:
    block(world, total=1, lasts=24 * 60 * MINUTE)
    block(world, total=5, lasts=39 * MINUTE, zone="us-east-1b")
    start(world, 3, ["reserved", "on-demand"])
    world.run_until(lambda: len(running(world)) == 3, limit=5 * MINUTE)
    assert kinds(world.nodes()) == ["", "", "capacity-block"]
    assert world.failures() == []


def test_two_blocks_are_used_by_a_call_each(world: World) -> None:
    for zone in ("us-east-1a", "us-east-1b"):
        block(world, total=1, lasts=24 * 60 * MINUTE, zone=zone)
    start(world, 2, ["reserved"])
    world.run_until(lambda: len(running(world)) == 2, limit=10 * MINUTE)
    assert kinds(world.nodes()) == ["capacity-block"] * 2
    assert world.failures() == []
