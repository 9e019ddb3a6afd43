"""Objects of a cluster that Karpenter runs, for single runs of shadow mode."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.kubernetes.objects import timestamp

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from tests.e2e.shadow.shadow_cluster import ShadowCluster

START = datetime(2026, 3, 2, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FIVE = 5 * MINUTE


def node_class() -> Obj:
    """Karpenter's, with its status."""
    ready = {"type": "Ready", "status": "True", "observedGeneration": 1, "lastTransitionTime": timestamp(START)}
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default", "generation": 1},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": "KarpenterNodeRole-demo",
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        },
        "status": {
            "subnets": [{"id": f"subnet-{zone}", "zone": f"us-east-1{zone}"} for zone in "ab"],
            "conditions": [ready],
        },
    }


def node_pool(**spec: Any) -> Obj:
    requirements = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": list(SIZES)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default", "generation": 1},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": k, "operator": "In", "values": v} for k, v in requirements.items()],
                    "expireAfter": "Never",
                }
            },
            "disruption": {"consolidateAfter": "1m", "budgets": [{"nodes": "100%"}]},
            **spec,
        },
    }


SIZES = {"m5.large": ("1930m", "7Gi"), "m5.xlarge": ("3920m", "14Gi"), "m5.2xlarge": ("7910m", "29Gi")}


def real_node(
    name: str,
    instance_type: str = "m5.xlarge",
    *,
    created: datetime = START - 60 * MINUTE,
    labels: dict[str, str] | None = None,
) -> list[Obj]:
    """A node of Karpenter with its NodeClaim; with ``labels`` of its own, a node of somebody else."""
    own = labels or {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand"}
    all_labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": "us-east-1a",
        **own,
    }
    cpu, memory = SIZES[instance_type]
    resources = {"cpu": cpu, "memory": memory, "pods": "58"}
    provider_id = f"aws:///us-east-1a/i-{hashlib.sha256(name.encode()).hexdigest()[:17]}"
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": all_labels, "creationTimestamp": timestamp(created)},
        "spec": {"providerID": provider_id},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": timestamp(created)}],
        },
    }
    up = [
        {"type": t, "status": "True", "reason": t, "lastTransitionTime": timestamp(created)}
        for t in ("Launched", "Registered", "Initialized")
    ]
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": f"claim-{name}", "labels": all_labels, "creationTimestamp": timestamp(created)},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
            "expireAfter": "Never",
        },
        "status": {"nodeName": name, "providerID": provider_id, "conditions": up, "capacity": resources},
    }
    return [node] if labels else [node, claim]


def pod(
    name: str,
    node: str = "",
    *,
    cpu: str = "1000m",
    created: datetime = START - 60 * MINUTE,
    waited: int = 0,
    **spec: Any,
) -> Obj:
    """A pod of a ReplicaSet: bound ``waited`` seconds after it was created, or pending."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-web", "controller": True}
    bound = created + timedelta(seconds=waited)
    scheduled = (
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(bound)}
        if node
        else {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": "web"},
            "ownerReferences": [owner],
            "creationTimestamp": timestamp(created),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
            **spec,
        },
        "status": {
            "phase": "Running" if node else "Pending",
            "startTime": timestamp(bound),
            "conditions": [scheduled],
        },
    }


def put(cluster: ShadowCluster, *objects: Obj | list[Obj]) -> None:
    for obj in objects:
        for single in obj if isinstance(obj, list) else [obj]:
            cluster.put(single)
