"""NodePools and EC2NodeClasses have the hashes by which Karpenter, too, knows what has changed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.world import sample_objects
from shared.api import labels as names

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

REQUIREMENTS = {"karpenter.sh/capacity-type": ["spot"]}


def hashes(obj: Obj) -> tuple[str, str]:
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(names.NODEPOOL_HASH, ""), annotations.get(names.NODEPOOL_HASH_VERSION, "")


def test_a_cluster_is_handed_over_and_back_without_drift(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    world.apply(sample_objects.node_pool(REQUIREMENTS))
    world.apply(sample_objects.deployment("web", 1, {"cpu": "500m", "memory": "256Mi"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=timedelta(minutes=5))
    world.run_for(timedelta(minutes=2))
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    pool, (claim,) = world.store.get(kind, "default"), world.claims()
    assert hashes(pool)[1] == "v3"
    assert hashes(pool) == hashes(claim)
    node_class = world.store.get(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"), "default")
    for annotation in (names.NODECLASS_HASH, names.NODECLASS_HASH_VERSION):
        assert node_class["metadata"]["annotations"][annotation] == claim["metadata"]["annotations"][annotation]

    # Another version takes over and writes hashes of its own.
    foreign = {names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v4"}
    world.store.patch(kind, "default", {"metadata": {"annotations": foreign}})
    claim_kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    world.store.patch(claim_kind, claim["metadata"]["name"], {"metadata": {"annotations": foreign}})
    world.run_for(timedelta(minutes=5))
    (after,) = world.claims()
    assert after["metadata"]["uid"] == claim["metadata"]["uid"]
    assert hashes(after) == hashes(world.store.get(kind, "default")) == hashes(claim)
