"""Volumes that exist on one node: its pods stay there, the node stays for them, and without it nothing is bought."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.world.sample_objects import deployment, node_class, node_pool
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

LIMIT = timedelta(minutes=6)
REQUESTS = {"cpu": "600m", "memory": "256Mi"}


def volume_on(node: Obj, name: str) -> list[Obj]:
    """A StorageClass, a local volume on the node, and a claim for it."""
    common = {"storageClassName": "disks", "accessModes": ["ReadWriteOnce"]}
    hostname = node["metadata"]["labels"]["kubernetes.io/hostname"]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [hostname]}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "disks"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {**common, **affinity, "local": {"path": "/mnt/disk"}, "capacity": {"storage": "20Gi"}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {**common, "resources": {"requests": {"storage": "20Gi"}}},
        },
    ]


def events(world: World, kind: str, reason: str) -> set[str]:
    return {
        e["message"]
        for e in world.store.list(kinds.EVENTS)
        if e["involvedObject"]["kind"] == kind
        and e["reason"] == reason
        and (e.get("source") or {}).get("component") == "tenon"
    }


def test_the_node_of_a_local_volume_stays_and_nothing_is_bought_once_it_is_gone(world: World) -> None:
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    requirements = {"karpenter.sh/capacity-type": ["on-demand"], "kubernetes.io/arch": ["amd64"]}
    world.apply([node_class(world), node_pool(requirements, disruption=disruption)])
    world.apply(deployment("web", 9, REQUESTS))
    world.run_until(lambda: len(running(world, "web")) == 9, limit=LIMIT)
    home = max(world.nodes(), key=lambda n: int(n["status"]["capacity"]["cpu"]))
    world.scale("default", "web", 6)
    world.run_for(timedelta(seconds=5))
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "disk-7"}}]
    world.apply([*volume_on(home, "disk-7"), deployment("db", 1, {"cpu": "100m"}, volumes=mounted)])
    world.run_until(lambda: len(running(world, "db")) == 1, limit=LIMIT)
    (pod,) = running(world, "db")
    assert pod["spec"]["nodeName"] == home["metadata"]["name"]

    world.scale("default", "web", 0)
    world.run_for(timedelta(minutes=15))
    template = {"metadata": {"labels": {"revision": "2"}}}
    pools = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(pools, "default", {"spec": {"template": template}})
    world.run_for(timedelta(minutes=5))
    assert [n["metadata"]["name"] for n in world.nodes()] == [home["metadata"]["name"]]
    assert [p["metadata"]["uid"] for p in running(world, "db")] == [pod["metadata"]["uid"]]
    assert any("its volumes exist on a node with" in message for message in events(world, "Node", "DisruptionBlocked"))

    (node_claim,) = world.claims()
    bought = len(world.timeline.of("claim created"))
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), node_claim["metadata"]["name"])
    world.run_until(lambda: not world.nodes(), limit=LIMIT)
    world.run_for(timedelta(minutes=10))
    assert len(world.timeline.of("claim created")) == bought
    assert any(
        "PersistentVolume disk-7, which exists only on node" in message
        for message in events(world, "Pod", "FailedScheduling")
    )


def test_a_claim_that_a_provisioner_must_give_up_first_gets_its_node_then(spot_default: World) -> None:
    world = spot_default
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "ledger",
            "namespace": "default",
            "annotations": {"volume.kubernetes.io/selected-node": "ip-10-0-0-99.ec2.internal"},
        },
        "spec": {
            "storageClassName": "fast",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "8Gi"}},
        },
    }
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "ledger"}}]
    world.apply([storage_class, claim, deployment("db", 1, REQUESTS, volumes=mounted)])
    world.run_until(lambda: len(running(world, "db")) == 1, limit=LIMIT)
    assert len(world.timeline.of("claim created")) == 1
