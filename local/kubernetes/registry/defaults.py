"""The defaults of built-in kinds other than Pod, and the initial status of new objects.

Source: ``pkg/apis/*/v1/defaults.go``, for the fields that decisions and people rely on. Pods: ``pod_strategy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.registry import pod_strategy
from local.kubernetes.registry.object_meta import without_empty_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj

_WITH_REPLICAS = frozenset(kind.resource for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS))
WITH_TEMPLATE = _WITH_REPLICAS | {kinds.DAEMON_SETS.resource, kinds.JOBS.resource}
"""The resources with a pod template."""
_INT32_MAX = 2**31 - 1
_POINTERS = frozenset(("volumeMode", "completionMode"))
"""Fields whose empty text isn't the same as their absence."""
_DEFAULT_ROLLING_UPDATE_LIMIT = "25%"
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_NODE_INFO = (
    "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
    "machineID", "operatingSystem", "osImage", "systemUUID",
)  # fmt: skip


def set_defaults(kind: Kind, obj: Obj) -> None:
    """Fill in the defaults of a built-in kind other than Pod, in place."""
    for name, value in _DEFAULTS_OUTSIDE_SPEC.get(kind.resource, {}).items():
        obj.setdefault(name, value)
    defaults = _DEFAULTS.get(kind.resource)
    if defaults is not None:
        spec = obj.get("spec")
        obj["spec"] = spec = dict(spec) if isinstance(spec, dict) else {}
        for name in _POINTERS & defaults.keys():
            spec.setdefault(name, defaults[name])
        pod_strategy.fill_in(spec, {name: value for name, value in defaults.items() if name not in _POINTERS})
    complete = _COMPLETED.get(kind.resource)
    if complete is not None:
        complete(obj)
    if kind.resource in WITH_TEMPLATE:
        _default_template(kind, obj["spec"])


def set_initial_status(kind: Kind, obj: Obj) -> None:
    """Set the status of a new object, in place, if its kind has an initial one."""
    status = _INITIAL_STATUS.get(kind.resource)
    if status is not None:
        obj["status"] = dict(status)


def _default_data(obj: Obj) -> None:
    for name in [name for name in ("data", "binaryData") if obj.get(name) == {}]:
        del obj[name]


def _label_namespace(namespace: Obj) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), _NAMESPACE_NAME: metadata["name"]}


def _default_stateful_set(stateful_set: Obj) -> None:
    spec = stateful_set["spec"]
    strategy = spec["updateStrategy"] = {"type": "RollingUpdate", **(spec.get("updateStrategy") or {})}
    if strategy["type"] == "RollingUpdate":
        rolling = strategy["rollingUpdate"] = {"partition": 0, **(strategy.get("rollingUpdate") or {})}
        rolling.pop("maxUnavailable", None)  # behind a feature gate that is off
    retention, names = spec["persistentVolumeClaimRetentionPolicy"], ("whenDeleted", "whenScaled")
    spec["persistentVolumeClaimRetentionPolicy"] = {name: retention.get(name) or "Retain" for name in names}


def _default_job(job: Obj) -> None:
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _INT32_MAX if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")


def _default_node_status(node: Obj) -> None:
    if node["spec"].get("unschedulable") is False:
        del node["spec"]["unschedulable"]
    status = node["status"] = dict(node.get("status") or {})
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = dict(status["capacity"])
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = {**dict.fromkeys(_NODE_INFO, ""), **(status.get("nodeInfo") or {})}


def _default_pod_template(owner: Obj) -> None:
    template = owner.get("template")
    if isinstance(template, dict):
        template["metadata"] = without_empty_fields(template.get("metadata") or {})
        pod_strategy.default_spec(template.setdefault("spec", {}))


def _default_template(kind: Kind, spec: Obj) -> None:
    _default_pod_template(spec)
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
        "revisionHistoryLimit": 10,
    },
    kinds.DAEMON_SETS.resource: {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        "revisionHistoryLimit": 10,
    },
    kinds.JOBS.resource: {
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "suspend": False,
    },
    kinds.LEASES.resource: {},
    kinds.POD_DISRUPTION_BUDGETS.resource: {},
    kinds.SERVICES.resource: {"type": "ClusterIP", "sessionAffinity": "None"},
    kinds.PERSISTENT_VOLUMES.resource: {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    kinds.PERSISTENT_VOLUME_CLAIMS.resource: {"volumeMode": "Filesystem"},
    kinds.CSI_DRIVERS.resource: {
        "attachRequired": True,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "podInfoOnMount": False,
        "requiresRepublish": False,
        "storageCapacity": False,
        "volumeLifecycleModes": ["Persistent"],
    },
}

_DEFAULTS_OUTSIDE_SPEC: dict[str, Obj] = {
    kinds.STORAGE_CLASSES.resource: {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    kinds.PRIORITY_CLASSES.resource: {"preemptionPolicy": "PreemptLowerPriority"},
}

_COMPLETED: dict[str, Callable[[Obj], None]] = {
    kinds.CONFIG_MAPS.resource: _default_data,
    kinds.SECRETS.resource: _default_data,
    kinds.JOBS.resource: _default_job,
    kinds.NAMESPACES.resource: _label_namespace,
    kinds.NODES.resource: _default_node_status,
    kinds.POD_TEMPLATES.resource: _default_pod_template,
    kinds.STATEFUL_SETS.resource: _default_stateful_set,
}
"""What completes the objects of a kind."""

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
    kinds.FLOW_SCHEMAS.resource: {},
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
