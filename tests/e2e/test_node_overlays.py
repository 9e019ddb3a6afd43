"""NodeOverlays: their prices decide what is launched and what nodes are replaced by, their resources what pods get."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from shared.api.labels import INSTANCE_TYPE
from tests.e2e.world_state import events, running
from tests.unit.instance_types.node_overlays import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
REQUESTS = {"cpu": "900m", "memory": "900Mi"}
CHEAPEST, DEAREST = "m5a.large", "r5.large"
TYPES = {"karpenter.sh/capacity-type": ["on-demand"], INSTANCE_TYPE: [CHEAPEST, "m5.large", DEAREST]}
DISCOUNT = manifest("discount", (INSTANCE_TYPE, "In", [DEAREST]), priceAdjustment="-90%")
OVERLAY = ("karpenter.sh/v1alpha1", "NodeOverlay")

Json = dict[str, Any]


@pytest.fixture
def world() -> Iterator[World]:
    with World(options=Options()) as world:
        yield world


def start(world: World, *objects: Json, replicas: int = 1, requests: Json = REQUESTS) -> None:
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(TYPES, disruption=disruption)])
    world.apply([*objects, sample_objects.deployment("web", replicas, requests)])


def types_of_nodes(world: World) -> list[str]:
    return [n["metadata"]["labels"][INSTANCE_TYPE] for n in world.nodes()]


def delete(world: World, name: str) -> None:
    world.store.delete(world.store.kind(*OVERLAY), name)


def conditions(world: World, name: str) -> dict[str, tuple[str, str, str]]:
    """By type: status, reason and message."""
    status = world.store.get(world.store.kind(*OVERLAY), name).get("status", {})
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions", [])}


def ready(world: World, name: str) -> tuple[str, str]:
    return conditions(world, name).get("Ready", ("", "", ""))[:2]


def drifted(world: World) -> list[str]:
    return [
        claim["metadata"]["name"]
        for claim in world.claims()
        for c in claim["status"].get("conditions", [])
        if (c["type"], c["status"]) == ("Drifted", "True")
    ]


@pytest.mark.flow
def test_an_overlay_decides_what_is_launched_and_consolidation_follows_it(world: World) -> None:
    start(world, DISCOUNT)
    world.run_until(lambda: len(running(world)) == 1)
    assert types_of_nodes(world) == [DEAREST]
    assert ready(world, "discount") == ("True", "Ready")
    world.run_for(5 * MINUTE)
    assert types_of_nodes(world) == [DEAREST]

    delete(world, "discount")
    world.run_until(lambda: types_of_nodes(world) == [CHEAPEST], limit=120 * MINUTE)
    assert len(running(world)) == 1

    world.apply(DISCOUNT)
    world.run_until(lambda: types_of_nodes(world) == [DEAREST], limit=120 * MINUTE)
    assert len(running(world)) == 1
    reasons = {e.details.get("reason") for e in world.timeline.of("claim deleted")}
    assert not drifted(world)
    assert "Drifted" not in reasons
    assert not world.failures()


def test_of_two_overlays_that_conflict_one_says_so_until_the_conflict_is_gone(world: World) -> None:
    start(world, DISCOUNT, manifest("base", price="1.0"))
    world.run_until(lambda: bool(ready(world, "base")[0]))
    message = (
        "NodeOverlay discount of the same weight 0 sets the price of r5.large in NodePool default, too; this overlay "
        "isn't applied"
    )
    assert conditions(world, "base") == {
        "ValidationSucceeded": ("False", "Conflict", message),
        "Ready": ("False", "Conflict", message),
    }
    assert ready(world, "discount") == ("True", "Ready")
    about_base = events(world, name="base")
    assert {(e["type"], e["reason"], e["message"]) for e in about_base} == {("Warning", "Conflict", message)}
    world.run_until(lambda: len(running(world)) == 1)
    assert types_of_nodes(world) == [DEAREST]

    world.apply(manifest("base", price="1.0", weight=1))
    world.run_until(lambda: ready(world, "base") == ("True", "Ready"), limit=MINUTE)
    generations = {
        c["observedGeneration"] for c in world.store.get(world.store.kind(*OVERLAY), "base")["status"]["conditions"]
    }
    assert generations == {2}
    assert not world.failures()


def test_an_overlay_that_is_invalid_names_its_field_and_changes_nothing(world: World) -> None:
    start(world, manifest("typo", ("karpenter.sh/capacity-type", "In", ["cheap"]), price="0.01"), DISCOUNT)
    world.run_until(lambda: len(running(world)) == 1)
    status, reason, message = conditions(world, "typo")["Ready"]
    assert (status, reason) == ("False", "Invalid")
    assert message.startswith('spec.requirements[0].values: ["cheap"] matches no node')
    assert types_of_nodes(world) == [DEAREST]


def test_pods_get_nodes_for_a_resource_that_only_an_overlay_knows_and_run_when_it_is_registered(world: World) -> None:
    start(world, replicas=3, requests={"cpu": "100m", "example.com/device": "1"})
    world.run_for(2 * MINUTE)
    assert world.claims() == []
    world.apply(manifest("devices", (INSTANCE_TYPE, "In", ["m5.large"]), capacity={"example.com/device": "2"}))
    world.run_until(lambda: len(world.nodes()) == 2, limit=3 * MINUTE)
    world.run_for(3 * MINUTE)
    assert types_of_nodes(world) == ["m5.large", "m5.large"]  # and no more, although no node has the resource yet
    for claim in world.claims():
        (initialized,) = [c for c in claim["status"]["conditions"] if c["type"] == "Initialized"]
        assert (initialized["status"], initialized["reason"]) == ("Unknown", "ResourceNotRegistered")
    for node in world.nodes():
        name, status = node["metadata"]["name"], {"example.com/device": "2"}
        world.store.patch(
            kinds.NODES, name, {"status": {"allocatable": status, "capacity": status}}, subresource="status"
        )
    world.run_until(lambda: len(running(world)) == 3, limit=3 * MINUTE)
    assert len(world.claims()) == 2
    assert not world.failures()


def test_a_cluster_without_the_kind_works(world: World) -> None:
    world.store.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, "nodeoverlays.karpenter.sh")
    start(world)
    world.run_until(lambda: len(running(world)) == 1)
    world.run_for(2 * MINUTE)
    assert types_of_nodes(world) == [CHEAPEST]
    assert not world.failures()
