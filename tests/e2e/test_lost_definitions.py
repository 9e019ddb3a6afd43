"""The custom resource definitions are deleted, with every NodePool and NodeClaim, and come back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import boto3
import pytest

from local.faults import Fault
from shared import cloud_provider
from shared.api.labels import LAUNCH_GROUP
from shared.cloud_provider import MAX_PORTION
from tests.e2e.interruptions.environment import deployment, fill, small_nodes

if TYPE_CHECKING:
    from local.world import World


def lose_everything(world: World) -> None:
    """What is left after somebody has removed the finalizers that held up the deletion."""
    for api_version, name_of_kind in (
        ("karpenter.sh/v1", "NodeClaim"),
        ("karpenter.sh/v1", "NodePool"),
        ("karpenter.k8s.aws/v1", "EC2NodeClass"),
    ):
        kind = world.store.kind(api_version, name_of_kind)
        for stored in world.store.list(kind):
            name = stored["metadata"]["name"]
            world.store.patch(kind, name, {"metadata": {"finalizers": None}})
            world.store.delete(kind, name)


def is_true(obj: dict[str, Any], condition_type: str) -> bool:
    return any(c["type"] == condition_type and c["status"] == "True" for c in obj["status"]["conditions"])


@pytest.mark.parametrize(
    ("away", "max_portion"),
    [(timedelta(), MAX_PORTION), (timedelta(minutes=20), MAX_PORTION), (timedelta(minutes=20), 0)],
    ids=["at once", "later", "in a cluster that is compared in portions"],
)
def test_nodes_get_their_nodeclaims_back_and_none_is_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch, away: timedelta, max_portion: int
) -> None:
    monkeypatch.setattr(cloud_provider, "MAX_PORTION", max_portion)
    small_nodes(world)
    world.apply([deployment("web", 12)])
    fill(world, 12)
    world.run_for(timedelta(minutes=2))
    claims = {(c["metadata"]["name"], c["status"]["providerID"]) for c in world.claims()}
    instances = {i.id for i in world.instances()}
    pods = {p["metadata"]["uid"] for p in world.pods(phase="Running")}
    assert len(claims) == 6
    lose_everything(world)
    world.run_for(away)
    assert not world.claims()
    small_nodes(world)
    world.run_until(lambda: len(world.claims()) == 6, limit=timedelta(minutes=5))
    world.run_for(timedelta(minutes=30))
    assert {(c["metadata"]["name"], c["status"]["providerID"]) for c in world.claims()} == claims
    conditions = [{c["type"]: c["status"] for c in claim["status"]["conditions"]} for claim in world.claims()]
    assert all(c["Initialized"] == "True" and c.get("Drifted") != "True" for c in conditions)
    assert {i.id for i in world.instances()} == instances
    assert {p["metadata"]["uid"] for p in world.pods(phase="Running")} == pods
    assert world.failures() == []


@pytest.mark.parametrize("crash", ["before", "after"])
def test_a_function_that_dies_between_the_two_writes_buys_no_second_instance(
    world: World, crash: Literal["before", "after"]
) -> None:
    small_nodes(world)
    world.apply([deployment("web", 6)])
    fill(world, 6)
    world.run_for(timedelta(minutes=2))
    instances = {i.id for i in world.instances()}
    for instance in world.instances():  # tagged by hand, or launched before launch groups were
        boto3.client("ec2").delete_tags(Resources=[instance.id], Tags=[{"Key": LAUNCH_GROUP}])
    lose_everything(world)
    world.faults.inject_kubernetes("POST", "/nodeclaims", Fault(crash=crash), times=3, caller="lifecycle")
    small_nodes(world)
    world.scale("default", "web", 7)
    world.run_for(timedelta(minutes=30))
    assert len([point for point, fault in world.faults.occurred if fault.crash]) == 3
    assert instances <= {i.id for i in world.instances()}
    assert len(world.aws.instances.all) == len(world.claims()) == 4
    assert {c["status"]["providerID"].rpartition("/")[2] for c in world.claims()} >= instances
    assert all(is_true(c, "Initialized") for c in world.claims())
    assert len(world.pods(phase="Running")) == 7
