"""The defaults of built-in kinds other than Pod, and the initial status of new objects.

Source: ``pkg/apis/*/v1/defaults.go``, for the fields that decisions and people rely on. Pods: ``pod_strategy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.registry import pod_strategy

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj

_WITH_REPLICAS = frozenset(kind.resource for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS))
WITH_TEMPLATE = _WITH_REPLICAS | {kinds.DAEMON_SETS.resource, kinds.JOBS.resource}
"""The resources with a pod template."""
_DEFAULT_ROLLING_UPDATE_LIMIT = "25%"


def set_defaults(kind: Kind, obj: Obj) -> None:
    """Fill in the defaults of a built-in kind other than Pod, in place."""
    defaults = _DEFAULTS.get(kind.resource)
    if defaults is not None:
        spec = obj.get("spec")
        obj["spec"] = spec = dict(spec) if isinstance(spec, dict) else {}
        for name, value in defaults.items():
            spec.setdefault(name, value)
    if kind.resource in WITH_TEMPLATE:
        _default_template(kind, obj["spec"])


def set_initial_status(kind: Kind, obj: Obj) -> None:
    """Set the status of a new object, in place, if its kind has an initial one."""
    status = _INITIAL_STATUS.get(kind.resource)
    if status is not None:
        obj["status"] = dict(status)


def _default_template(kind: Kind, spec: Obj) -> None:
    template = spec.get("template")
    if isinstance(template, dict):
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
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
    },
    kinds.DAEMON_SETS.resource: {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        "revisionHistoryLimit": 10,
    },
    kinds.JOBS.resource: {"parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": False},
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
}
