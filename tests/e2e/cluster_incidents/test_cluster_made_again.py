"""A cluster is deleted while its nodes run, and another one is made under its name."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from tests.e2e.interruptions.environment import deployment, fill, small_nodes

if TYPE_CHECKING:
    from local.world import World

MINUTE = timedelta(minutes=1)
OF_THE_CLUSTER = (
    ("karpenter.sh/v1", "NodePool"),
    ("karpenter.k8s.aws/v1", "EC2NodeClass"),
    ("karpenter.sh/v1", "NodeClaim"),
)


def make_again(world: World) -> None:
    """Remove all objects that users, Tenon and kubelets have made; the new cluster's API server has none of them."""
    custom = [world.store.kind(api_version, kind) for api_version, kind in OF_THE_CLUSTER]
    for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.PODS, kinds.NODES, *custom):
        for obj in world.store.list(kind):
            name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
            if obj["metadata"].get("finalizers"):
                world.store.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)
            if world.store.find(kind, name, namespace=namespace) is not None:
                grace = 0 if kind is kinds.PODS else None
                world.store.delete(kind, name, namespace=namespace, grace_period_seconds=grace)


def test_instances_of_the_old_one_are_terminated_and_none_becomes_a_node_of_the_new_one(world: World) -> None:
    small_nodes(world)
    world.apply([deployment("web", 8)])
    fill(world, 8)
    world.run_for(2 * MINUTE)
    old = {i.id for i in world.instances()}
    names = {c["metadata"]["name"] for c in world.claims()}
    make_again(world)
    small_nodes(world)
    world.apply([deployment("api", 4)])
    world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=10 * MINUTE)
    world.run_for(10 * MINUTE)
    assert not old & {i.id for i in world.instances()}
    assert len(world.instances()) == len(world.nodes()) == len(world.claims()) == 2
    assert not names & {c["metadata"]["name"] for c in world.claims()}
    assert world.failures() == []
    assert world.dead_letters() == []
