"""The custom resource definitions are deleted, with every NodePool and NodeClaim, and come back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize("away", [timedelta(), timedelta(minutes=20)])
def test_nodes_get_their_nodeclaims_back_and_none_is_replaced(world: World, away: timedelta) -> None:
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
