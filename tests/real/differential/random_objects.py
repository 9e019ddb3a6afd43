"""Random objects of built-in kinds, most of them valid. Custom kinds: ``random_custom_objects``.

Names come from a small pool, so that requests meet objects that exist, and ones that don't.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
Rng = random.Random

NAMES = ("a", "b", "c", "d")
NAMESPACE = "tests"
_UID = "11111111-2222-3333-4444-555555555555"


@dataclass(frozen=True)
class RandomKind:
    """A kind, how to make an object of it, and a change of its spec and of its status."""

    api_version: str
    kind: str
    plural: str
    spec: Callable[[Rng], Json]
    """The fields of a new object apart from its metadata."""
    change: Callable[[Rng], Json]
    """A merge patch of the spec."""
    status: Callable[[Rng], Json] | None = None
    """A status; None without that subresource."""
    namespaced: bool = True
    scale: bool = False

    @property
    def is_custom(self) -> bool:
        """Whether the kind is defined by a CustomResourceDefinition."""
        return "." in self.api_version.partition("/")[0] and not self.api_version.split("/")[0].endswith(".k8s.io")

    def collection(self, namespace: str = NAMESPACE) -> str:
        """The path of its objects."""
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        return f"{root}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{root}/{self.plural}"


def _labels(rng: Rng) -> Json:
    return {"app": rng.choice(("web", "db")), **({"tier": rng.choice(("x", "y"))} if rng.random() < 0.5 else {})}


def metadata(rng: Rng, name: str) -> Json:
    """Valid metadata."""
    meta: Json = {"name": name, "labels": _labels(rng)}
    if rng.random() < 0.3:
        meta["annotations"] = {"example.com/note": rng.choice(("", "one", "two"))}
    if rng.random() < 0.15:
        meta["finalizers"] = ["example.com/hold"]
    if rng.random() < 0.1:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": _UID}
        meta["ownerReferences"] = [owner | ({"controller": True} if rng.random() < 0.5 else {})]
    return meta


def _resources(rng: Rng) -> Json:
    resources: Json = {}
    if rng.random() < 0.7:
        resources["requests"] = {"cpu": rng.choice(("100m", "1", "0.5")), "memory": rng.choice(("1Gi", "512Mi", "1e3"))}
    if rng.random() < 0.3:
        resources["limits"] = {"cpu": "2", "memory": "2Gi"}
    return resources


def _pod_spec(rng: Rng) -> Json:
    container: Json = {"name": "main", "image": rng.choice(("web", "web:1", "example.com:5000/web", "web:latest"))}
    if rng.random() < 0.7:
        container["resources"] = _resources(rng)
    if rng.random() < 0.2:
        container["ports"] = [{"containerPort": 80}]
    if rng.random() < 0.2:
        container["env"] = [{"name": "A", "value": "1"}, {"name": "B"}]
    spec: Json = {"containers": [container]}
    if rng.random() < 0.15:
        spec["initContainers"] = [{"name": "init", "image": "init:1"}]
    if rng.random() < 0.2:
        spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    if rng.random() < 0.2:
        spec["nodeSelector"] = {"zone": "a"}
    if rng.random() < 0.2:
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if rng.random() < 0.2:
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        spec["topologySpreadConstraints"] = [spread | {"labelSelector": {"matchLabels": {"app": "web"}}}]
    if rng.random() < 0.15:
        spec["terminationGracePeriodSeconds"] = rng.choice((0, 5, 60))
    return spec


def _pod(rng: Rng) -> Json:
    spec = _pod_spec(rng)
    if rng.random() < 0.4:
        spec["nodeName"] = "n"
    if rng.random() < 0.1:
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
        spec.pop("nodeName", None)
    if rng.random() < 0.1:
        spec["priorityClassName"] = rng.choice(("system-node-critical", "absent"))
    if rng.random() < 0.1:
        spec["restartPolicy"] = "Never"
    return {"spec": spec}


def _pod_change(rng: Rng) -> Json:
    return rng.choice((
        {"activeDeadlineSeconds": 60},
        {"nodeName": "other"},
        {"priority": 5},
        {"tolerations": [{"key": "more", "operator": "Exists"}]},
        {"schedulingGates": None},
        {"nodeSelector": {"zone": "b"}},
        {"terminationGracePeriodSeconds": 7},
        {"containers": [{"name": "main", "image": "web:2"}]},
    ))  # fmt: skip


def random_condition(rng: Rng, type_: str) -> Json:
    time = "2026-11-21T08:00:00Z"
    return {"type": type_, "status": rng.choice(("True", "False")), "reason": "Test", "lastTransitionTime": time}


def _pod_status(rng: Rng) -> Json:
    return rng.choice((
        {"phase": "Running", "conditions": [random_condition(rng, "Ready")]},
        {"phase": "Succeeded"},
        {"conditions": [random_condition(rng, "PodScheduled"), random_condition(rng, "Ready")]},
        {"nominatedNodeName": rng.choice(("n", "m"))},
        {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    ))  # fmt: skip


def _template(rng: Rng) -> Json:
    return {"metadata": {"labels": {"app": "web"}}, "spec": _pod_spec(rng)}


def _workload(rng: Rng) -> Json:
    replicas = {"replicas": rng.choice((0, 1, 3))} if rng.random() < 0.7 else {}
    return {"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": _template(rng), **replicas}}


def _daemonset(rng: Rng) -> Json:
    return {"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": _template(rng)}}


def _stateful_set(rng: Rng) -> Json:
    workload = _workload(rng)
    workload["spec"]["serviceName"] = "web"
    return workload


def _job(rng: Rng) -> Json:
    spec = _pod_spec(rng) | {"restartPolicy": rng.choice(("Never", "OnFailure"))}
    return {
        "spec": {"template": {"spec": spec}, **({"parallelism": 2, "completions": 3} if rng.random() < 0.5 else {})}
    }


def _workload_change(rng: Rng) -> Json:
    return rng.choice((
        {"replicas": rng.choice((0, 2, 5, -1))},
        {"template": {"spec": {"terminationGracePeriodSeconds": 3}}},
        {"template": {"metadata": {"labels": {"app": rng.choice(("web", "other"))}}}},
        {"minReadySeconds": 5},
    ))  # fmt: skip


def _template_change(rng: Rng) -> Json:
    return {"template": {"spec": {"terminationGracePeriodSeconds": rng.choice((3, 4))}}}


def _node(rng: Rng) -> Json:
    taints = [{"key": "spot", "value": "true", "effect": rng.choice(("NoSchedule", "NoExecute"))}]
    spec: Json = {"taints": taints} if rng.random() < 0.5 else {}
    if rng.random() < 0.5:
        spec["providerID"] = "aws:///a/i-1"
    return {"spec": spec} if rng.random() < 0.8 else {}


def _node_change(rng: Rng) -> Json:
    return rng.choice((
        {"unschedulable": rng.choice((True, False))},
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"taints": None},
        {"taints": [{"key": "k", "effect": "Never"}]},
        {"providerID": rng.choice(("aws:///a/i-1", "aws:///b/i-2"))},
    ))  # fmt: skip


def _node_status(rng: Rng) -> Json:
    capacity = {"cpu": rng.choice(("2", "4")), "memory": "8Gi", "pods": "110"}
    return rng.choice((
        {"capacity": capacity},
        {"capacity": capacity, "allocatable": {**capacity, "cpu": "1900m"}},
        {"conditions": [random_condition(rng, "Ready")]},
        {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    ))  # fmt: skip


def _config_map(rng: Rng) -> Json:
    return {"data": {"key": rng.choice(("one", "two"))}} if rng.random() < 0.8 else {}


def _secret(rng: Rng) -> Json:
    return rng.choice(({"data": {"key": "b25l"}}, {"stringData": {"key": "two"}}, {"type": "example.com/own"}, {}))


def _budget(rng: Rng) -> Json:
    limit = rng.choice(({"minAvailable": 1}, {"maxUnavailable": "50%"}, {"maxUnavailable": 0}, {"minAvailable": "10%"}))
    return {"spec": {"selector": {"matchLabels": {"app": rng.choice(("web", "db"))}}, **limit}}


def _budget_change(rng: Rng) -> Json:
    return rng.choice((
        {"maxUnavailable": rng.choice((1, "20%", -1, "x")), "minAvailable": None},
        {"minAvailable": 2, "maxUnavailable": 2},
        {"unhealthyPodEvictionPolicy": "AlwaysAllow"},
    ))  # fmt: skip


def _budget_status(rng: Rng) -> Json:
    allowed, healthy = rng.choice((0, 1, 2)), rng.choice((1, 2, 3))
    return {
        "observedGeneration": rng.choice((1, 5)),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": 2,
        "expectedPods": 3,
    }


def _lease(rng: Rng) -> Json:
    spec = {"holderIdentity": rng.choice(("x", "y")), "leaseDurationSeconds": 15}
    return {"spec": spec | ({"renewTime": "2026-11-21T08:00:00.000000Z"} if rng.random() < 0.5 else {})}


def _lease_change(rng: Rng) -> Json:
    return rng.choice(({"holderIdentity": "z"}, {"leaseTransitions": 3}, {"leaseDurationSeconds": rng.choice((30, 0))}))


POD = RandomKind("v1", "Pod", "pods", _pod, _pod_change, _pod_status)
BUDGET = RandomKind(
    "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", _budget, _budget_change, _budget_status
)  # fmt: skip
_NODE = RandomKind("v1", "Node", "nodes", _node, _node_change, _node_status, namespaced=False)
BUILT_IN_KINDS = (
    POD,
    BUDGET,
    _NODE,
    RandomKind("v1", "ConfigMap", "configmaps", _config_map, lambda _: {}),
    RandomKind("v1", "Secret", "secrets", _secret, lambda _: {}),
    RandomKind("apps/v1", "Deployment", "deployments", _workload, _workload_change, scale=True),
    RandomKind("apps/v1", "ReplicaSet", "replicasets", _workload, _workload_change, scale=True),
    RandomKind("apps/v1", "StatefulSet", "statefulsets", _stateful_set, _workload_change, scale=True),
    RandomKind("apps/v1", "DaemonSet", "daemonsets", _daemonset, _template_change),
    RandomKind("batch/v1", "Job", "jobs", _job, lambda rng: {"parallelism": rng.choice((1, 4))}),
    RandomKind("coordination.k8s.io/v1", "Lease", "leases", _lease, _lease_change),
)
"""Built-in kinds."""
