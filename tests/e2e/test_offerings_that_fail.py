"""Errors of EC2 that mean "not this, the next": another zone, type or capacity type is launched, in few calls."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.world import World, sample_objects
from shared.api import labels as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MINUTE = timedelta(minutes=1)
REQUESTS = {"cpu": "1700m", "memory": "3Gi"}


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def start(world: World, replicas: int, capacity_types: Sequence[str] = ("spot", "on-demand")) -> None:
    """A pool of general types, and pods that nearly fill a node each."""
    requirements = {names.CAPACITY_TYPE: capacity_types, "karpenter.k8s.aws/instance-family": ["m5", "m6i", "c6i"]}
    pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "Never"})
    world.apply([sample_objects.node_class(world), pool, sample_objects.deployment("web", replicas, REQUESTS)])


def capacity_types(world: World) -> set[str]:
    return {n["metadata"]["labels"][names.CAPACITY_TYPE] for n in world.nodes()}


@pytest.mark.flow
def test_without_the_role_for_spot_instances_on_demand_is_launched_in_few_calls_and_an_event_names_the_command(
    world: World,
) -> None:
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    message = (
        "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."
    )
    world.aws.capacity.fail("spot", "*", "*", (code, message))
    start(world, 4)
    world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=3 * MINUTE)
    assert capacity_types(world) == {"on-demand"}
    assert len(world.aws.fleets.calls) <= 8


@pytest.mark.parametrize(
    "error",
    [
        ("SpotMaxPriceTooLow", "Your Spot request price of 0.02 is lower than the minimum required of 0.03."),
        ("ACodeThatNobodyKnows", "Something about this pool."),
    ],
)
def test_pools_that_fail_are_left_for_others(world: World, error: tuple[str, str]) -> None:
    world.aws.capacity.fail("spot", "*", "us-east-1a", error)
    world.aws.capacity.fail("spot", "*", "us-east-1b", error)
    start(world, 5, ["spot"])
    world.run_until(lambda: len(world.pods(phase="Running")) == 5, limit=3 * MINUTE)
    assert capacity_types(world) == {"spot"}
    assert {n["metadata"]["labels"][names.ZONE] for n in world.nodes()} <= {"us-east-1c", "us-east-1d", "us-east-1f"}


def test_if_nothing_can_be_launched_the_event_has_the_words_of_ec2_and_few_calls_are_made(world: World) -> None:
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.fail(capacity_type, "*", "*", ("ACodeThatNobodyKnows", "The moon is in the wrong phase."))
    start(world, 2)
    world.run_for(10 * MINUTE)
    assert world.nodes() == []
    assert any("wrong phase" in e["message"] for e in world.store.list(kinds.EVENTS))
    assert len(world.aws.fleets.calls) <= 40
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.fail(capacity_type, "*", "*", None)
    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=12 * MINUTE)


def test_a_reservation_that_ended_a_moment_ago_is_followed_by_on_demand(world: World) -> None:
    tags = {"team": "search"}
    reservation = world.aws.reservations.add("m5.large", "us-east-1a", total=3, now=world.clock.now(), tags=tags)
    requirements = {names.CAPACITY_TYPE: ["reserved", "on-demand"], names.INSTANCE_TYPE: ["m5.large"]}
    pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "Never"})
    node_class = sample_objects.node_class(world, capacityReservationSelectorTerms=[{"tags": tags}])
    world.apply([node_class, pool, sample_objects.deployment("web", 1, REQUESTS)])
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=3 * MINUTE)
    world.aws.reservations.end(reservation)
    world.scale("default", "web", 3)
    world.run_until(lambda: len(world.pods(phase="Running")) == 3, limit=3 * MINUTE)
    assert "on-demand" in capacity_types(world)
