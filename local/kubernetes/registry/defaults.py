"""The defaults of built-in kinds other than Pod, and the initial status of new objects.

Source: ``pkg/apis/*/v1/defaults.go``, for the fields that decisions and people rely on. Pods: ``pod_strategy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.registry import pod_strategy
from local.kubernetes.registry.object_meta import without_empty_fields
from local.kubernetes.registry.quantities import set_canonical

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj

_WITH_REPLICAS = frozenset(kind.resource for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS))
WITH_TEMPLATE = _WITH_REPLICAS | {kinds.DAEMON_SETS.resource, kinds.JOBS.resource}
"""The resources with a pod template."""
_WITH_DATA = frozenset((kinds.CONFIG_MAPS.resource, kinds.SECRETS.resource))
_DEFAULT_ROLLING_UPDATE_LIMIT = "25%"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_NODE_INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
    "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip


def set_defaults(kind: Kind, obj: Obj) -> None:
    """Fill in the defaults of a built-in kind other than Pod, in place."""
    defaults = _DEFAULTS.get(kind.resource)
    if defaults is not None:
        spec = obj.get("spec")
        obj["spec"] = spec = dict(spec) if isinstance(spec, dict) else {}
        for name, value in defaults.items():
            spec.setdefault(name, value)
    if kind.resource in _WITH_DATA:
        for name in [name for name in ("data", "binaryData") if obj.get(name) == {}]:
            del obj[name]
    if kind.resource == kinds.JOBS.resource:
        _default_job(obj["spec"])
    if kind.resource in WITH_TEMPLATE:
        _default_template(kind, obj["spec"])
    if kind.resource == kinds.NODES.resource:
        _default_node_status(obj)
    if kind.resource == kinds.NAMESPACES.resource:
        metadata = obj["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), _NAMESPACE_NAME: metadata["name"]}


def set_initial_status(kind: Kind, obj: Obj) -> None:
    """Set the status of a new object, in place, if its kind has an initial one."""
    status = _INITIAL_STATUS.get(kind.resource)
    if status is not None:
        obj["status"] = dict(status)


def _default_job(spec: Obj) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)


def _default_node_status(node: Obj) -> None:
    if node["spec"].get("unschedulable") is False:
        del node["spec"]["unschedulable"]
    status = node["status"] = dict(node.get("status") or {})
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = dict(status["capacity"])
    set_canonical(status, "capacity", "allocatable")
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **(status.get("nodeInfo") or {})}


def _default_template(kind: Kind, spec: Obj) -> None:
    template = spec.get("template")
    if isinstance(template, dict):
        template["metadata"] = without_empty_fields(template.get("metadata") or {})
        pod_strategy.default_spec(template.setdefault("spec", {}))
    strategy = spec.get("strategy")
    if kind.resource == kinds.DEPLOYMENTS.resource and isinstance(strategy, dict):
        strategy = {"type": "RollingUpdate", **strategy}
        if strategy["type"] == "RollingUpdate":
            rolling_update = strategy.get("rollingUpdate") or {}
            strategy["rollingUpdate"] = {
                "maxUnavailable": _DEFAULT_ROLLING_UPDATE_LIMIT,
                "maxSurge": _DEFAULT_ROLLING_UPDATE_LIMIT,
                **rolling_update,
            }
        spec["strategy"] = strategy


_DEFAULTS: dict[str, Obj] = {
    kinds.NODES.resource: {},
    kinds.NAMESPACES.resource: {"finalizers": ["kubernetes"]},
    kinds.DEPLOYMENTS.resource: {
        "replicas": 1,
        "strategy": {},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    kinds.REPLICA_SETS.resource: {"replicas": 1},
    kinds.STATEFUL_SETS.resource: {
        "replicas": 1,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
    },
    kinds.DAEMON_SETS.resource: {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        "revisionHistoryLimit": 10,
    },
    kinds.JOBS.resource: {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": False,
    },
    kinds.LEASES.resource: {},
    kinds.POD_DISRUPTION_BUDGETS.resource: {},
    kinds.SERVICES.resource: {"type": "ClusterIP", "sessionAffinity": "None"},
    kinds.PERSISTENT_VOLUMES.resource: {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    kinds.PERSISTENT_VOLUME_CLAIMS.resource: {"volumeMode": "Filesystem"},
}

_INITIAL_STATUS: dict[str, Obj] = {
    kinds.NAMESPACES.resource: {"phase": "Active"},
    kinds.DEPLOYMENTS.resource: {},
    kinds.REPLICA_SETS.resource: {"replicas": 0},
    kinds.STATEFUL_SETS.resource: {"replicas": 0, "availableReplicas": 0},
    kinds.DAEMON_SETS.resource: {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    kinds.JOBS.resource: {},
    kinds.SERVICES.resource: {"loadBalancer": {}},
    kinds.PERSISTENT_VOLUMES.resource: {"phase": "Pending"},
    kinds.PERSISTENT_VOLUME_CLAIMS.resource: {"phase": "Pending"},
    kinds.POD_DISRUPTION_BUDGETS.resource: {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
}
