"""ProvisioningRequests: nodes for all pods of a request or for none, and room that is kept until the pods are there."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from shared.api import labels as names
from tests.e2e import zone_capacity
from tests.e2e.provisioning_requests import CHECK, conditions, definition, pod_template, request
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""
PODS = 6


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        requirements = {names.CAPACITY_TYPE: ["on-demand"], names.INSTANCE_TYPE: ["m5.large"]}
        pool = sample_objects.node_pool(requirements, disruption={"consolidateAfter": "30s"})
        world.apply([definition(), sample_objects.node_class(world), pool])
        yield world


def ask(world: World, *, count: int = PODS, **options: Any) -> None:
    world.apply([pod_template("train", LARGE), request("train", count=count, **options)])


def is_provided(world: World) -> bool:
    return conditions(world, "train").get("Provisioned", ("", "", ""))[0] == "True"


def consumers(replicas: int) -> dict[str, Any]:
    """A Deployment whose pods use the request, as Kueue's do."""
    deployment = sample_objects.deployment("train", replicas, LARGE)
    annotations = {"autoscaling.x-k8s.io/consume-provisioning-request": "train"}
    deployment["spec"]["template"]["metadata"]["annotations"] = annotations
    return deployment


@pytest.mark.flow
def test_all_nodes_are_up_before_the_request_is_provided_and_its_pods_use_them(world: World) -> None:
    ask(world)
    world.run_until(lambda: is_provided(world), limit=5 * MINUTE)
    nodes = {node["metadata"]["name"] for node in world.nodes()}
    assert len(nodes) == PODS
    assert len({node["metadata"]["labels"][names.ZONE] for node in world.nodes()}) == 1
    status = conditions(world, "train")
    assert status["Accepted"][0] == "True"
    assert status["Provisioned"] == ("True", "CapacityIsProvisioned", f"nodes for all {PODS} pods are there")

    world.run_for(3 * MINUTE)  # longer than empty nodes are kept
    assert {node["metadata"]["name"] for node in world.nodes()} == nodes
    world.apply([consumers(PODS)])
    world.run_until(lambda: len(running(world)) == PODS, limit=MINUTE)
    world.run_for(12 * MINUTE)
    assert {node["metadata"]["name"] for node in world.nodes()} == nodes
    assert len(running(world)) == PODS


def test_a_part_goes_back_within_two_minutes_and_the_next_zone_has_all(world: World) -> None:
    zone_capacity.leave(world, a=PODS - 1)
    ask(world)
    world.run_until(lambda: bool(events(world, "GangIncomplete")), limit=2 * MINUTE)
    world.run_until(lambda: not world.instances(), limit=2 * MINUTE)
    message = events(world, "GangIncomplete", kind="ProvisioningRequest", name="train")[0]["message"]
    assert "× m5.large on-demand us-east-1a" in message
    world.run_for(2 * MINUTE)
    assert world.instances() == []
    provided = conditions(world, "train")["Provisioned"]
    assert provided[:2] == ("False", "CapacityIsNotFound")
    assert f"of {PODS} pods fit on nodes that are there" in provided[2]

    zone_capacity.leave(world, b=3 * PODS)
    world.run_until(lambda: is_provided(world), limit=15 * MINUTE)
    assert {node["metadata"]["labels"][names.ZONE] for node in world.nodes()} == {"us-east-1b"}


def test_what_is_booked_and_not_used_goes_after_ten_minutes(world: World) -> None:
    ask(world, count=2)
    world.run_until(lambda: is_provided(world), limit=5 * MINUTE)
    world.run_for(9 * MINUTE)
    assert len(world.nodes()) == 2
    world.run_until(lambda: not world.nodes(), limit=6 * MINUTE)
    assert conditions(world, "train")["BookingExpired"][:2] == ("True", "CapacityReservationTimeExpired")
    world.run_for(5 * MINUTE)
    assert world.claims() == []


def test_a_check_of_capacity_buys_nothing_and_books_what_is_there(world: World) -> None:
    ask(world, count=1, provisioning_class=CHECK, partialCapacityCheck="true")
    world.run_for(3 * MINUTE)
    assert world.claims() == []
    assert "aren't supported: partialCapacityCheck" in conditions(world, "train")["Accepted"][2]
    assert conditions(world, "train")["Provisioned"][:2] == ("False", "CapacityIsNotFound")

    world.apply([sample_objects.deployment("web", 1, LARGE)])
    world.run_until(lambda: len(running(world)) == 1, limit=5 * MINUTE)
    world.scale("default", "web", 0)
    world.run_until(lambda: is_provided(world), limit=2 * MINUTE)
    assert conditions(world, "train")["Provisioned"][1] == "CapacityIsFound"
    world.run_for(5 * MINUTE)
    assert len(world.nodes()) == 1


def test_a_check_that_may_not_wait_fails(world: World) -> None:
    ask(world, count=1, provisioning_class=CHECK, noRetry="true")
    world.run_until(lambda: "Failed" in conditions(world, "train"), limit=2 * MINUTE)
    assert conditions(world, "train")["Failed"][:2] == ("True", "CapacityIsNotFound")
    assert events(world, "ProvisioningRequestFailed", kind="ProvisioningRequest", name="train")


def test_a_request_whose_template_comes_later_is_served_then(world: World) -> None:
    """Kueue creates the PodTemplates after the request that owns them."""
    world.apply([request("train", count=1)])
    world.run_for(2 * MINUTE)
    status = conditions(world, "train")["Provisioned"]
    assert status == ("False", "PodTemplateNotFound", "there is no valid PodTemplate train in namespace default")
    world.apply([pod_template("train", LARGE)])
    world.run_until(lambda: is_provided(world), limit=5 * MINUTE)


def test_requests_of_another_class_are_left_alone(world: World) -> None:
    ask(world, provisioning_class="queued-provisioning.gke.io")
    world.run_for(3 * MINUTE)
    assert conditions(world, "train") == {}
    assert world.claims() == []
