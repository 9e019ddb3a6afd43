"""The objects of the stub cluster, as large as those of real API servers: pods of 5 KB and nodes of 13 KB."""

from __future__ import annotations

import functools
import json
from typing import Any

from functions.lifecycle.claims.adoption import adopted
from shared.api import decode, nodeclass, nodepool
from shared.api import labels as names
from shared.api.nodeclaim import NodeClaim

ZONE = "us-east-1a"
_POD_BYTES = 5_000
_IMAGES = 50
"""As many images a kubelet reports (``nodeStatusMaxImages``): most of a node's 12 KB."""
STAMP = "2026-11-21T12:00:00Z"
_READY = {"type": "Ready", "status": "True", "lastTransitionTime": STAMP}
_KUBELET_CONDITIONS = [
    {"type": kind, "status": "True", "lastTransitionTime": STAMP}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
]
_SIZE = {"cpu": "2", "memory": "8Gi", "pods": "58"}
_CLASS = {"group": names.AWS_GROUP, "kind": "EC2NodeClass", "name": "default"}
POOL = {
    "metadata": {"name": "default", "uid": "pool"},
    "spec": {"template": {"spec": {"nodeClassRef": _CLASS, "requirements": []}}},
}


def pod(i: int, *, nodes: int, version: int = 1) -> dict[str, Any]:
    """A pod of 5 KB on one of the nodes, as its kubelet reports it; with a negative number it is pending."""
    is_bound = i >= 0
    requests = {"cpu": "100m", "memory": "100Mi"} if is_bound else {"cpu": "1", "memory": "2Gi"}
    obj: dict[str, Any] = {
        "metadata": {
            "name": f"web-{i}",
            "namespace": "default",
            "uid": f"pod-{i}",
            "resourceVersion": str(version),
            "creationTimestamp": STAMP,
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "web",
                    "image": "web",
                    "resources": {"requests": requests},
                }
            ],
            "volumes": [{"name": f"kube-api-access-{i}", "projected": {"sources": []}}],
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"key": names.NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {"phase": "Running" if is_bound else "Pending"},
    }
    if is_bound:
        obj["spec"]["nodeName"] = f"node-{i % nodes}"
        container = {"name": "web", "allocatedResources": requests, "resources": {"requests": requests}}
        obj["status"] |= {"conditions": _KUBELET_CONDITIONS, "startTime": STAMP, "containerStatuses": [container]}
    else:
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        obj["status"]["conditions"] = [unplaced]
    filler = _POD_BYTES - len(json.dumps(obj))
    obj["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:status": "x" * max(filler - 70, 0)}}]
    return obj


def node(i: int) -> dict[str, Any]:
    """A full node of a NodePool."""
    own = {
        names.NODEPOOL: "default",
        names.INITIALIZED: "true",
        names.REGISTERED: "true",
        names.INSTANCE_TYPE: "m5.large",
        names.ZONE: ZONE,
        names.ARCH: "amd64",
        names.OS: "linux",
        names.CAPACITY_TYPE: "spot",
        names.HOSTNAME: f"node-{i}",
    }
    return {
        "metadata": {
            "name": f"node-{i}",
            "uid": f"node-{i}",
            "resourceVersion": "1",
            "labels": own,
            "finalizers": [names.TERMINATION_FINALIZER],
            "ownerReferences": [
                {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": f"claim-{i}", "uid": f"claim-{i}"}
            ],
        },
        "spec": {"providerID": f"aws:///{ZONE}/i-{i:017x}"},
        "status": {"capacity": _SIZE, "allocatable": _SIZE, "conditions": [_READY], "images": _images()},
    }


def _images() -> list[dict[str, Any]]:
    repository = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/service"
    return [
        {"names": [f"{repository}-{n}@sha256:{n:064x}", f"{repository}-{n}:v1.{n}"], "sizeBytes": 100_000_000 + n}
        for n in range(_IMAGES)
    ]


@functools.cache
def _hashes() -> dict[str, str]:
    """The annotations of a NodeClaim of the NodePool and node class as they are."""
    pool = decode.node_pool({"apiVersion": nodepool.API_VERSION, "kind": nodepool.KIND, **POOL}).value
    own_class = decode.node_class(
        {"apiVersion": nodeclass.API_VERSION, "kind": nodeclass.KIND, **node_class("demo")}
    ).value
    return dict(adopted(NodeClaim(), pool, own_class).metadata.annotations)


def claim(i: int) -> dict[str, Any]:
    """The node's NodeClaim, with all that functions write to it."""
    done = [
        {"type": t, "status": "True", "reason": t, "lastTransitionTime": STAMP}
        for t in ("Launched", "Registered", "Initialized", "Ready", "Consolidatable")
    ]
    return {
        "metadata": {
            "name": f"claim-{i}",
            "uid": f"claim-{i}",
            "labels": {names.NODEPOOL: "default"},
            "annotations": _hashes(),
            "finalizers": [names.TERMINATION_FINALIZER],
        },
        "spec": {"nodeClassRef": _CLASS, "requirements": []},
        "status": {
            "providerID": f"aws:///{ZONE}/i-{i:017x}",
            "nodeName": f"node-{i}",
            "capacity": _SIZE,
            "allocatable": _SIZE,
            "conditions": done,
        },
    }


def node_class(cluster: str) -> dict[str, Any]:
    """A node class that the local AWS can resolve."""
    discovery = [{"tags": {"karpenter.sh/discovery": cluster}}]
    return {
        "metadata": {"name": "default", "uid": "class"},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
        },
    }
