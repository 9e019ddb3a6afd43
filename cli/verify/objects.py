"""The objects of a run, as JSON: its namespace, NodePool, node class, pods and PodDisruptionBudget.

Each has the label ``tenon.sh/verify`` with the run's id, and ends by itself if the run dies: pods by their deadline,
after which their nodes are empty and are removed; the NodePool buys at most three nodes at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api import labels
from shared.cluster import resources

if TYPE_CHECKING:
    from collections.abc import Mapping

Obj = dict[str, Any]

LABEL = "tenon.sh/verify"
"""Label of the run's objects: the run's id."""
TAG = "tenon-verify"
"""Tag of the run's AWS resources: the same. Node classes can't have tags that begin with ``tenon.sh/``."""
RENEWED = "tenon.sh/verify-renewed"
"""Annotation of the run's namespace: when the run was last seen alive."""
PREFIX = "tenon-verify-"
POD_SECONDS = 1200
"""How long a pod runs, at most; longer than any step needs it."""
INSTANCE_MINUTES = 60
"""When an instance shuts itself down, if nobody has terminated it."""
MAX_NODES = 3
_VCPUS = 2
_UNPRIVILEGED_USER = 65535


def name(run: str) -> str:
    """The name of the run's namespace, NodePool and node class."""
    return f"{PREFIX}{run}"


def namespace(run: str, *, renewed: str) -> Obj:
    """The run's namespace, made first and removed last."""
    metadata = {"name": name(run), "labels": {LABEL: run}, "annotations": {RENEWED: renewed}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def node_class(run: str, spec: Mapping[str, Any]) -> Obj:
    """An EC2NodeClass with this spec, whose instances have the run's tag."""
    return {
        "apiVersion": resources.NODE_CLASSES.api_version,
        "kind": resources.NODE_CLASSES.kind,
        "metadata": {"name": name(run), "labels": {LABEL: run}},
        "spec": {**spec, "tags": {**spec.get("tags", {}), TAG: run}},
    }


def default_class_spec(description: Mapping[str, Any]) -> Obj:
    """The spec of a class for the cluster's own subnets and security group, by EKS's description of the cluster."""
    network = description.get("resourcesVpcConfig", {})
    group = network.get("clusterSecurityGroupId")
    groups = [group] if group else list(network.get("securityGroupIds", ()))
    return {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"id": subnet} for subnet in network.get("subnetIds", ())],
        "securityGroupSelectorTerms": [{"id": group} for group in groups],
        "userData": shutdown_script(),
    }


def shutdown_script() -> str:
    """User data of an instance that shuts itself down after an hour."""
    return f"#!/bin/sh\nshutdown -h +{INSTANCE_MINUTES}\n"


def node_pool(run: str) -> Obj:
    """A NodePool of small nodes, for the run's pods only, which are removed soon after they are empty."""
    spec = {
        "template": {
            "metadata": {"labels": {LABEL: run}},
            "spec": {
                "nodeClassRef": {
                    "group": resources.NODE_CLASSES.group,
                    "kind": resources.NODE_CLASSES.kind,
                    "name": name(run),
                },
                "taints": [{"key": LABEL, "value": run, "effect": "NoSchedule"}],
                "requirements": [
                    _in(labels.CAPACITY_TYPE, labels.SPOT, labels.ON_DEMAND),
                    _in(f"{labels.AWS_GROUP}/instance-cpu", str(_VCPUS)),
                    {"key": f"{labels.AWS_GROUP}/instance-memory", "operator": "Gt", "values": ["2047"]},
                    _in(labels.OS, "linux"),
                ],
                "expireAfter": "1h",
                "terminationGracePeriod": "20m",
            },
        },
        "limits": {"cpu": str(MAX_NODES * _VCPUS)},
        "disruption": {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "30s",
            "budgets": [{"nodes": "100%"}],
        },
    }
    return {
        "apiVersion": resources.NODE_POOLS.api_version,
        "kind": resources.NODE_POOLS.kind,
        "metadata": {"name": name(run), "labels": {LABEL: run}},
        "spec": spec,
    }


def pod(run: str, pod_name: str, *, image: str, capacity_type: str = "") -> Obj:
    """A pod that needs a node of the run's pool for itself, of the capacity type if one is given."""
    selector = {LABEL: run, **({labels.CAPACITY_TYPE: capacity_type} if capacity_type else {})}
    of_run = {"matchLabels": {LABEL: run}}
    container = {
        "name": "pause",
        "image": image,
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name, "namespace": name(run), "labels": {LABEL: run, "app": pod_name}},
        "spec": {
            "activeDeadlineSeconds": POD_SECONDS,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "nodeSelector": selector,
            "tolerations": [{"key": LABEL, "operator": "Exists"}],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": labels.HOSTNAME, "labelSelector": of_run}
                    ]
                }
            },
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _UNPRIVILEGED_USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


def budget(run: str, pod_name: str, *, min_available: int) -> Obj:
    """A PodDisruptionBudget for the pod."""
    return {
        "apiVersion": resources.POD_DISRUPTION_BUDGETS.api_version,
        "kind": resources.POD_DISRUPTION_BUDGETS.kind,
        "metadata": {"name": pod_name, "namespace": name(run), "labels": {LABEL: run}},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": pod_name}}},
    }


def _in(key: str, *values: str) -> Obj:
    return {"key": key, "operator": "In", "values": list(values)}
