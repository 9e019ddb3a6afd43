"""NodeClaims that somebody creates without a NodePool: launched, registered, drained and given back as they are."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import sample_objects
from shared.api import labels as names
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

SOON = timedelta(minutes=3)


def node_claim(*requirements: dict[str, Any], **spec: Any) -> Obj:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "alone", "labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m"]},
                *requirements,
            ],
            **spec,
        },
    }


def conditions(claim: Obj) -> dict[str, str]:
    return {c["type"]: c["status"] for c in (claim.get("status") or {}).get("conditions") or []}


def events_on(world: World, name: str) -> dict[str, str]:
    return {event["reason"]: event["message"] for event in events(world, name=name)}


@pytest.fixture
def with_class(world: World) -> World:
    """A cluster with a node class that is ready, and no NodePool."""
    world.apply(sample_objects.node_class(world))
    world.run_until_idle()
    return world


@pytest.mark.flow
def test_it_is_launched_and_registered_with_all_that_it_says(with_class: World) -> None:
    world = with_class
    taint = {"key": "own", "effect": "NoSchedule", "value": "x"}
    world.apply(node_claim(taints=[taint], resources={"requests": {"cpu": "3", "memory": "11Gi"}}))
    world.run_until(lambda: any(conditions(c).get("Ready") == "True" for c in world.claims()), limit=SOON)
    (claim,), (node,) = world.claims(), world.nodes()
    assert names.TERMINATION_FINALIZER in claim["metadata"]["finalizers"]
    assert node["metadata"]["labels"].items() >= {"team": "a", "karpenter.sh/capacity-type": "on-demand"}.items()
    assert node["metadata"]["annotations"]["note"] == "b"
    assert taint in node["spec"]["taints"]
    assert int(node["status"]["capacity"]["cpu"]) > 3


@pytest.mark.parametrize("deleted", ["Node", "NodeClaim"])
def test_it_is_given_back_when_somebody_deletes_it_or_its_node(with_class: World, deleted: str) -> None:
    world = with_class
    world.apply(node_claim())
    world.run_until(lambda: any(conditions(c).get("Ready") == "True" for c in world.claims()), limit=SOON)
    if deleted == "Node":
        world.store.delete(kinds.NODES, world.nodes()[0]["metadata"]["name"])
    else:
        world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), "alone")
    world.run_until(lambda: not (world.claims() or world.nodes() or world.instances()), limit=SOON)


def test_it_is_deleted_when_it_expires(with_class: World) -> None:
    world = with_class
    world.apply(node_claim(expireAfter="5m"))
    world.run_until(lambda: any(conditions(c).get("Ready") == "True" for c in world.claims()), limit=SOON)
    world.run_until(lambda: not (world.claims() or world.instances()), limit=timedelta(minutes=10))
    assert events_on(world, "alone")["Expired"].startswith("older than expireAfter 5m")


def test_without_a_node_class_it_is_deleted_and_an_event_says_why(world: World) -> None:
    world.apply(node_claim())
    world.run_until(lambda: not world.claims(), limit=SOON)
    assert events_on(world, "alone")["NodeClassNotReady"] == (
        'there is no valid EC2NodeClass or AWSNodeTemplate named "default"'
    )
    assert not world.aws.calls.count()["ec2", "CreateFleet"]


def test_without_an_instance_type_for_it_it_is_deleted_and_an_event_says_why(with_class: World) -> None:
    world = with_class
    world.apply(node_claim(resources={"requests": {"cpu": "100000"}}))
    world.run_until(lambda: not world.claims(), limit=SOON)
    assert events_on(world, "alone")["NoCompatibleInstanceTypes"].startswith("no instance type meets")
    assert not world.aws.calls.count()["ec2", "CreateFleet"]


def test_a_claim_that_waits_for_its_pool_says_so(with_class: World) -> None:
    world = with_class
    claim = node_claim()
    claim["metadata"]["labels"][names.NODEPOOL] = "missing"
    world.apply(claim)
    world.run_for(timedelta(minutes=2))
    (stored,) = world.claims()
    (launched,) = [c for c in stored["status"]["conditions"] if c["type"] == "Launched"]
    assert (launched["status"], launched["reason"]) == ("Unknown", "NodePoolNotReady")
    assert conditions(stored)["Ready"] == "Unknown"
    world.run_until(lambda: not world.claims(), limit=timedelta(minutes=6))
    assert "EC2" not in events_on(world, "alone")["LaunchTimeout"]


def test_a_claim_whose_launch_is_not_permitted_is_not_ready(with_class: World) -> None:
    world = with_class
    error = ("UnauthorizedOperation", "You are not authorized to perform this operation.")
    world.aws.capacity.fail("on-demand", "*", "*", error)
    world.apply(node_claim())
    world.run_until(lambda: any(conditions(c).get("Ready") == "False" for c in world.claims()), limit=SOON)
    (claim,) = world.claims()
    (ready,) = [c for c in claim["status"]["conditions"] if c["type"] == "Ready"]
    assert ready["message"] == events_on(world, "alone")["UnauthorizedOperation"]
    assert not world.instances()
