"""Capacity reservations that aren't there, or end: NodePools that allow on-demand launch it, and nodes run on."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MINUTE = timedelta(minutes=1)
LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""
TERMS = [{"tags": {"team": "search"}}]


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def start(world: World, replicas: int, capacity_types: Sequence[str] = ("reserved", "on-demand")) -> None:
    """A class that selects the team's reservations, a pool of m5.large, and pods with a node each."""
    requirements = {names.CAPACITY_TYPE: capacity_types, names.INSTANCE_TYPE: ["m5.large"]}
    pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "Never"})
    node_class = sample_objects.node_class(world, capacityReservationSelectorTerms=TERMS)
    world.apply([node_class, pool, sample_objects.deployment("search", replicas, LARGE)])


def capacity_types(objects: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(o["metadata"]["labels"].get(names.CAPACITY_TYPE, "") for o in objects)


@pytest.mark.flow
def test_without_a_matching_reservation_on_demand_is_launched_and_an_event_says_that_none_was_found(
    world: World,
) -> None:
    start(world, 3)
    world.run_until(lambda: len(running(world)) == 3, limit=5 * MINUTE)
    assert capacity_types(world.nodes()) == ["on-demand"] * 3
    (node_class,) = world.store.list(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"))
    conditions = {c["type"]: c for c in node_class["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["CapacityReservationsReady"]["reason"] == "CapacityReservationsNotFound"
    (event,) = events(world, "CapacityReservationsNotFound")
    assert 'tags {"team": "search"}' in event["message"]
    assert world.failures() == []


def test_a_reservation_that_is_bought_later_is_used_by_the_next_nodes(world: World) -> None:
    start(world, 1)
    world.run_until(lambda: len(running(world)) == 1, limit=5 * MINUTE)
    tags = {"team": "search"}
    world.aws.reservations.add("m5.large", "us-east-1b", total=2, now=world.clock.now(), tags=tags)
    world.run_for(7 * MINUTE)
    world.scale("default", "search", 3)
    world.run_until(lambda: len(running(world)) == 3, limit=5 * MINUTE)
    assert capacity_types(world.nodes()) == ["on-demand", "reserved", "reserved"]


@pytest.mark.flow
@pytest.mark.parametrize("state", ["expired", "cancelled"])
def test_nodes_of_an_ended_reservation_run_on_as_on_demand(world: World, state: str) -> None:
    tags = {"team": "search"}
    reservation = world.aws.reservations.add("m5.large", "us-east-1a", total=2, now=world.clock.now(), tags=tags)
    start(world, 2)
    world.run_until(lambda: len(running(world)) == 2, limit=5 * MINUTE)
    assert capacity_types(world.nodes()) == ["reserved"] * 2
    before = {i.id for i in world.instances()}
    world.run_for(6 * MINUTE)
    world.aws.reservations.end(reservation, state=state)
    world.run_for(13 * MINUTE)
    assert {i.id for i in world.instances()} == before
    assert world.timeline.of("claim terminating") == []
    for objects in (world.nodes(), world.claims()):
        assert capacity_types(objects) == ["on-demand"] * 2
        assert not any(set(names.RESERVATION_LABELS) & set(o["metadata"]["labels"]) for o in objects)
    messages = [e["message"] for e in events(world, "CapacityReservationEnded")]
    assert len(messages) == 2
    assert all(reservation in message for message in messages)
    assert world.failures() == []


def test_nodes_of_a_reservation_that_is_no_longer_selected_but_active_drift(world: World) -> None:
    tags = {"team": "search"}
    reservation = world.aws.reservations.add("m5.large", "us-east-1a", total=1, now=world.clock.now(), tags=tags)
    start(world, 1)
    world.run_until(lambda: len(running(world)) == 1, limit=5 * MINUTE)
    world.apply(sample_objects.node_class(world, capacityReservationSelectorTerms=[{"tags": {"team": "ads"}}]))
    world.run_until(lambda: capacity_types(world.nodes()) == ["on-demand"], limit=30 * MINUTE)
    assert world.aws.reservations.free(reservation, "m5.large", "us-east-1a") == 1
