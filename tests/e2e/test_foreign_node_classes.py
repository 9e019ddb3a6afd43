"""EKS Auto Mode next to Tenon: objects of its node classes are never changed, and its nodes are used."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws import backends
from local.kubernetes import kinds
from local.kubernetes.object_updates import update_status
from local.kubernetes.objects import timestamp

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.world import World

GROUP = "eks.amazonaws.com"
REF = {"group": GROUP, "kind": "NodeClass", "name": "default"}
FINALIZER = "karpenter.sh/termination"


def labels(pool: str) -> dict[str, str]:
    return {
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/registered": "true",
        "eks.amazonaws.com/compute-type": "auto",
        "eks.amazonaws.com/nodeclass": "default",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }


def auto_mode_instance(world: World) -> str:
    """An instance of Auto Mode's with the tags of Tenon's; its providerID."""
    tags = {f"kubernetes.io/cluster/{world.cluster}": "owned", "karpenter.sh/nodepool": "auto-general"}
    with world.aws.lock:
        (instance,) = boto3.client("ec2", region_name=world.region).run_instances(
            ImageId="ami-12c6146b",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}],
        )["Instances"]
    return f"aws:///{instance['Placement']['AvailabilityZone']}/{instance['InstanceId']}"


def claim(world: World, name: str, *, provider_id: str = "", node: str = "") -> None:
    kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    metadata = {
        "name": name,
        "labels": labels("auto-general"),
        "finalizers": [FINALIZER],
    }
    spec = {"nodeClassRef": REF, "requirements": []}
    stored = world.store.create(
        kind, {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": spec}
    )
    types = ["Launched", "Registered", "Initialized", "Ready"] if provider_id else []
    time = timestamp(world.clock.now())
    conditions = [{"type": t, "status": "True", "reason": t, "message": "", "lastTransitionTime": time} for t in types]
    if provider_id:
        update_status(world.store, kind, stored, conditions=conditions, providerID=provider_id, nodeName=node)


def node(world: World, name: str, provider_id: str) -> None:
    now = world.clock.now()
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "50"}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "",
        "lastTransitionTime": timestamp(now),
    }
    world.store.create(
        kinds.NODES,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels("auto-general"), "finalizers": [FINALIZER]},
            "spec": {"providerID": provider_id},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
        },
    )
    world.store.patch(kinds.NODES, name, {"spec": {"taints": None}})  # the API server's not-ready taint
    renewed = timestamp(now + timedelta(days=1))
    world.store.create(
        kinds.LEASES,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
        },
        namespace="kube-node-lease",
    )


def pool(world: World, name: str, spec: dict[str, Any]) -> None:
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    template = {"spec": {"nodeClassRef": REF, "requirements": [], **spec}}
    obj = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template},
    }
    world.store.create(kind, obj)


def auto_mode(world: World) -> None:
    """Auto Mode's pools, and NodeClaims in every state that garbage collection or liveness would end."""
    pool(world, "auto-general", {"expireAfter": "336h"})
    pool(
        world,
        "auto-odd",
        {"requirements": [{"key": "eks.amazonaws.com/instance-cpu", "operator": "Gt", "values": ["4"]}]},
    )
    provider_id = auto_mode_instance(world)
    claim(world, "auto-general-up", provider_id=provider_id, node="i-auto")
    node(world, "i-auto", provider_id)
    claim(world, "auto-general-starting")
    claim(world, "auto-general-hidden", provider_id="aws:///us-east-1a/i-0a00000000000000b", node="i-hidden")
    claim(world, "auto-general-leaving", provider_id="aws:///us-east-1a/i-0a00000000000000c", node="i-leaving")
    node(world, "i-leaving", "aws:///us-east-1a/i-0a00000000000000c")
    node(world, "i-unclaimed", "aws:///us-east-1a/i-0a00000000000000d")
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), "auto-general-leaving")
    world.store.delete(kinds.NODES, "i-leaving")


def foreign(world: World) -> dict[str, Obj]:
    listed = [
        *world.store.list(world.store.kind("karpenter.sh/v1", "NodePool")),
        *world.store.list(world.store.kind("karpenter.sh/v1", "NodeClaim")),
        *world.store.list(kinds.NODES),
    ]
    return {
        f"{o.get('kind')} {o['metadata']['name']}": o
        for o in listed
        if o["metadata"]["name"].startswith(("auto-", "i-auto", "i-leaving", "i-unclaimed"))
    }


def test_auto_modes_objects_are_the_same_after_an_hour(spot_default: World) -> None:
    world = spot_default
    auto_mode(world)
    before = foreign(world)
    assert len(before) == 9
    world.scale("default", "inflate", 20)
    world.run_for(timedelta(minutes=30))
    assert len(world.instances()) > 1
    world.scale("default", "inflate", 0)
    world.run_for(timedelta(minutes=30))
    assert foreign(world) == before
    assert world.instances() == []
    instances = [i for reservation in backends.ec2(world.region).all_reservations() for i in reservation.instances]
    assert [i.state for i in instances].count("running") == 1
    assert world.dead_letters() == []


@pytest.mark.flow
def test_pods_run_on_the_room_of_auto_modes_nodes(spot_default: World) -> None:
    world = spot_default
    auto_mode(world)
    world.scale("default", "inflate", 6)
    world.run_for(timedelta(minutes=10))
    assert {p["spec"]["nodeName"] for p in world.pods()} <= {"i-auto", "i-leaving", "i-unclaimed"}
    assert [c for c in world.claims() if c["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"] == []
