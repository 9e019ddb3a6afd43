"""Nodes of which no replacement can be staged: they go first, where the NodePool's annotation allows it.

The scenarios are those of Karpenter's AWS suites drift and repair, "terminate … before launching its replacement when
the reservation is full".
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.objects import timestamp
from local.world import World, sample_objects
from local.world.hostility import of_environment
from shared.api import labels as names
from shared.disruption.terminate_first import TERMINATE_FIRST
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

MINUTE = timedelta(minutes=1)
LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""
TERMS = [{"tags": {"team": "search"}}]
RESERVED = {names.CAPACITY_TYPE: ["reserved"], names.INSTANCE_TYPE: ["m5.large"]}
ALLOWED = {TERMINATE_FIRST: "true"}


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def node_class(world: World, **tags: str) -> dict[str, Any]:
    return sample_objects.node_class(world, capacityReservationSelectorTerms=TERMS, tags=tags)


def node_pool(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    budgets = [{"nodes": "100%"}]
    pool = sample_objects.node_pool(RESERVED, disruption={"consolidateAfter": "Never", "budgets": budgets}, **spec)
    pool["metadata"]["annotations"] = annotations
    return pool


def reserve(world: World, total: int) -> str:
    return world.aws.reservations.add(
        "m5.large", "us-east-1a", total=total, now=world.clock.now(), tags={"team": "search"}
    )


def initialized(world: World) -> list[str]:
    return sorted(
        n["metadata"]["name"]
        for n in world.nodes()
        if n["metadata"]["labels"].get(names.INITIALIZED) == "true" and not n["metadata"].get("deletionTimestamp")
    )


def at_once(world: World) -> int:
    """How many nodes there are, by their NodeClaims.

    In a hostile world, whose instances are shutting down for a minute, a replacement is launched meanwhile: the slot
    of a reservation is free from the shutdown on. There, the instances that run count.
    """
    return len(world.claims() if of_environment() is None else world.instances())


def claims(world: World) -> set[str]:
    return {c["metadata"]["name"] for c in world.claims()}


@pytest.mark.flow
def test_a_drifted_node_in_a_full_reservation_goes_once_the_annotation_is_there(world: World) -> None:
    reserve(world, 1)
    world.apply([node_class(world), node_pool({}), sample_objects.deployment("search", 1, LARGE)])
    world.run_until(lambda: len(running(world)) == 1, limit=5 * MINUTE)
    before = claims(world)
    world.run_for(6 * MINUTE)  # the class's status shows a full reservation
    world.apply(node_class(world, version="2"))
    world.run_for(6 * MINUTE)
    assert claims(world) == before
    (event,) = {e["message"] for e in events(world, "DisruptionBlocked")}
    assert f'annotation {TERMINATE_FIRST}: "true" on NodePool default' in event

    world.apply(node_pool(ALLOWED))
    most: list[int] = []
    without: list[datetime] = []

    def replaced() -> bool:
        most.append(at_once(world))
        if not running(world):
            without.append(world.clock.now())
        return not claims(world) & before and len(running(world)) == 1

    world.run_until(replaced, limit=20 * MINUTE)
    assert max(most) == 1
    assert without[-1] - without[0] < 3 * MINUTE
    (node,) = world.nodes()
    assert node["metadata"]["labels"][names.CAPACITY_TYPE] == "reserved"
    assert world.failures() == []


@pytest.mark.flow
@pytest.mark.parametrize(("replicas", "limit"), [(1, "2"), (2, "2")], ids=["full reservation", "at the limit"])
def test_nodes_of_a_static_pool_at_its_limit_or_in_a_full_reservation_are_replaced_one_by_one(
    world: World, replicas: int, limit: str
) -> None:
    reservation = reserve(world, replicas)
    world.apply([node_class(world), node_pool(ALLOWED, replicas=replicas, limits={"nodes": limit})])
    world.run_until(lambda: len(initialized(world)) == replicas, limit=10 * MINUTE)
    before = claims(world)
    world.run_for(6 * MINUTE)
    world.apply(node_class(world, version="2"))
    least: list[int] = []
    most: list[int] = []

    def replaced() -> bool:
        least.append(len(initialized(world)))
        most.append(at_once(world) if str(replicas) != limit else len(world.claims()))
        return not claims(world) & before and len(initialized(world)) == replicas

    world.run_until(replaced, limit=40 * MINUTE)
    assert min(least) == replicas - 1
    assert max(most) == replicas
    assert world.aws.reservations.free(reservation, "m5.large", "us-east-1a") == 0
    assert world.failures() == []


@pytest.mark.parametrize("spec", [{}, {"replicas": 1, "limits": {"nodes": "2"}}], ids=["dynamic", "static"])
def test_an_unhealthy_node_in_a_full_reservation_goes_before_its_replacement_comes(
    world: World, spec: dict[str, Any]
) -> None:
    reserve(world, 1)
    world.apply([node_class(world), node_pool({**ALLOWED, "tenon.sh/repair": "true"}, **spec)])
    if not spec:
        world.apply(sample_objects.deployment("search", 1, LARGE))
    world.run_until(lambda: len(initialized(world)) == 1, limit=10 * MINUTE)
    world.run_for(6 * MINUTE)
    before = claims(world)
    fault(world, initialized(world)[0])
    most: list[int] = []

    def replaced() -> bool:
        most.append(at_once(world))
        return not claims(world) & before and len(initialized(world)) == 1

    world.run_until(replaced, limit=40 * MINUTE)
    assert max(most) == 1
    (node,) = world.nodes()
    assert node["metadata"]["labels"][names.CAPACITY_TYPE] == "reserved"
    assert world.failures() == []


def fault(world: World, name: str) -> None:
    """Write the condition of a fatal GPU error, as the node monitoring agent does."""
    now = timestamp(world.clock.now())
    broken = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    before = world.store.get(kinds.NODES, name)["status"]["conditions"]
    conditions = [*before, {**broken, "message": "", "lastTransitionTime": now}]
    world.store.patch(kinds.NODES, name, {"status": {"conditions": conditions}}, subresource="status")
