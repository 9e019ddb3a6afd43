"""Defaults, admission and validation of objects before they are stored, and what each subresource may change.

Built-in kinds get the defaults and checks that decisions and people rely on, custom kinds those of their definition.
Sources: the strategies in kubernetes ``pkg/registry`` and the admission plugins that are on by default.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from local.kubernetes import errors, kinds, selectors
from local.kubernetes.errors import Cause
from local.kubernetes.registry import custom_resources, pod_strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_PROTECTED_NAMESPACES = frozenset(("default", "kube-system", "kube-public"))
_NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_WITH_REPLICAS = frozenset(kind.resource for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS))
_WITH_TEMPLATE = _WITH_REPLICAS | {kinds.DAEMON_SETS.resource, kinds.JOBS.resource}
_DEFAULT_ROLLING_UPDATE_LIMIT = "25%"


def on_create(kind: Kind, obj: Obj, store: Store) -> None:
    """Fill in the defaults of a new object and admit it, in place.

    Raises:
        ApiError: 403, it refers to an object that does not exist.
    """
    definition = store.definition(kind)
    if definition is not None:
        if kind.has_status:
            obj.pop("status", None)
        definition.prune_and_default(obj)
        return
    if kind.resource == kinds.PODS.resource:
        pod_strategy.admit(obj, store.list(kinds.PRIORITY_CLASSES))
        return
    if kind.has_status and kind.resource != kinds.NODES.resource:
        obj.pop("status", None)
    _default(kind, obj)
    status = _INITIAL_STATUS.get(kind.resource)
    if status is not None:
        obj["status"] = dict(status)
    _admit(kind, obj, store)


def _admit(kind: Kind, obj: Obj, store: Store) -> None:
    """The admission of kinds that need more than defaults."""
    match kind.resource:
        case kinds.SECRETS.resource:
            obj.setdefault("type", "Opaque")
            if string_data := obj.pop("stringData", None):
                encoded = {name: base64.b64encode(text.encode()).decode() for name, text in string_data.items()}
                obj["data"] = {**(obj.get("data") or {}), **encoded}
        case kinds.NODES.resource:
            obj["spec"]["taints"] = _with_not_ready_taint(obj["spec"].get("taints") or [])
        case kinds.PERSISTENT_VOLUME_CLAIMS.resource if "storageClassName" not in obj["spec"]:
            if name := _default_storage_class(store):
                obj["spec"]["storageClassName"] = name
        case kinds.CUSTOM_RESOURCE_DEFINITIONS.resource:
            custom_resources.default_definition(obj)


def _with_not_ready_taint(taints: list[Obj]) -> list[Obj]:
    """A new node's taints, with the not-ready taint of the TaintNodesByCondition admission plugin."""
    if any(t.get("key") == _NOT_READY_TAINT["key"] and t.get("effect") == _NOT_READY_TAINT["effect"] for t in taints):
        return taints
    return [*taints, dict(_NOT_READY_TAINT)]


def prepare_for_update(kind: Kind, new: Obj, old: Obj, subresource: str) -> Obj:
    """The object with only the changes that the subresource allows: its status, or everything but its status."""
    if subresource == "status":
        if not kind.has_status:
            raise errors.no_such_path()
        metadata = new["metadata"]
        if kind.custom:
            metadata = {**old["metadata"], "managedFields": metadata.get("managedFields")}
        elif "ownerReferences" in old["metadata"]:
            metadata = {**metadata, "ownerReferences": old["metadata"]["ownerReferences"]}
        kept = {name: value for name, value in old.items() if name not in {"status", "metadata", "apiVersion"}}
        changed = {"apiVersion": new["apiVersion"], **kept, "metadata": metadata}
        if new.get("status") is not None:
            changed["status"] = new["status"]
        return changed
    if kind.has_status:
        new = {name: value for name, value in new.items() if name != "status"}
        if "status" in old:
            new["status"] = old["status"]
    return new


def on_update(kind: Kind, new: Obj, old: Obj, store: Store) -> None:
    """Fill in the defaults of a changed object, in place."""
    definition = store.definition(kind)
    if definition is not None:
        definition.prune_and_default(new)
    elif kind.resource == kinds.PODS.resource:
        pod_strategy.default_spec(new.setdefault("spec", {}))
    else:
        _default(kind, new)
        if kind.resource == kinds.CUSTOM_RESOURCE_DEFINITIONS.resource and new.get("spec") != old.get("spec"):
            custom_resources.default_definition(new)


def on_delete(kind: Kind, obj: Obj) -> None:
    """Refuse to delete protected namespaces.

    Raises:
        ApiError: 403.
    """
    name = obj["metadata"]["name"]
    if kind.resource == kinds.NAMESPACES.resource and name in _PROTECTED_NAMESPACES:
        raise errors.forbidden(kind, name, "this namespace may not be deleted")


def terminating(kind: Kind, obj: Obj) -> Obj:
    """The object at the start of its deletion."""
    if kind.resource == kinds.NAMESPACES.resource:
        return {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}
    return obj


def validate(kind: Kind, new: Obj, old: Obj | None, store: Store) -> list[Cause]:
    """The errors of the object other than those of its metadata; ``old`` is None for a new object."""
    definition = store.definition(kind)
    if definition is not None:
        return definition.validate(new, old)
    validator = _VALIDATORS.get(kind.resource)
    causes = validator(new, old) if validator else []
    if kind.resource in _WITH_TEMPLATE:
        causes = [*causes, *_validate_template(kind, new)]
    return causes


def _default(kind: Kind, obj: Obj) -> None:
    """Fill in the defaults of a built-in kind other than Pod, in place."""
    defaults = _DEFAULTS.get(kind.resource)
    if defaults is not None:
        spec = obj.get("spec")
        obj["spec"] = spec = dict(spec) if isinstance(spec, dict) else {}
        for name, value in defaults.items():
            spec.setdefault(name, value)
    if kind.resource in _WITH_TEMPLATE:
        _default_template(kind, obj["spec"])


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


def _default_storage_class(store: Store) -> str:
    annotation = "storageclass.kubernetes.io/is-default-class"
    for storage_class in store.list(kinds.STORAGE_CLASSES):
        if (storage_class["metadata"].get("annotations") or {}).get(annotation) == "true":
            name: str = storage_class["metadata"]["name"]
            return name
    return ""


def _validate_pod(new: Obj, old: Obj | None) -> list[Cause]:
    return pod_strategy.validate(new) if old is None else pod_strategy.validate_update(new, old)


def _validate_node(new: Obj, old: Obj | None) -> list[Cause]:
    causes: list[Cause] = []
    before = ((old or {}).get("spec") or {}).get("providerID")
    after = (new.get("spec") or {}).get("providerID")
    if before and before != after:
        text = 'Forbidden: node updates may not change providerID except from "" to valid'
        causes.append(Cause("spec.providerID", "FieldValueForbidden", text))
    for index, taint in enumerate((new.get("spec") or {}).get("taints") or []):
        path = f"spec.taints[{index}]"
        if not taint.get("key"):
            causes.append(Cause(f"{path}.key", "FieldValueInvalid", 'Invalid value: "": name part must be non-empty'))
        allowed = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        if taint.get("effect") not in allowed:
            text = f'Unsupported value: "{taint.get("effect", "")}": supported values: ' + ", ".join(
                f'"{name}"' for name in sorted(allowed)
            )
            causes.append(Cause(f"{path}.effect", "FieldValueNotSupported", text))
    for name in ("capacity", "allocatable"):
        causes.extend(pod_strategy.validate_quantities((new.get("status") or {}).get(name), f"status.{name}"))
    return causes


def _validate_budget(new: Obj, _old: Obj | None) -> list[Cause]:
    spec = new.get("spec") or {}
    causes: list[Cause] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = "Invalid value: minAvailable and maxUnavailable cannot be both set"
        causes.append(Cause("spec", "FieldValueInvalid", text))
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if value is not None and not _is_count_or_percent(value):
            text = f"Invalid value: {_quoted(value)}: must be a non-negative integer or a percentage (e.g. '50%')"
            causes.append(Cause(f"spec.{name}", "FieldValueInvalid", text))
    return causes


def _is_count_or_percent(value: Any) -> bool:  # noqa: ANN401 (JSON)
    if isinstance(value, str):
        return value.endswith("%") and value[:-1].isdigit()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _quoted(value: Any) -> str:  # noqa: ANN401 (JSON)
    return f'"{value}"' if isinstance(value, str) else str(value)


def _validate_template(kind: Kind, obj: Obj) -> list[Cause]:
    spec = obj["spec"]
    causes: list[Cause] = []
    template = spec.get("template") or {}
    pod = {"spec": template.get("spec") or {}}
    causes.extend(Cause(f"spec.template.{c.field}", c.reason, c.message) for c in pod_strategy.validate(pod))
    if kind.resource == kinds.JOBS.resource:
        return causes
    if not spec.get("selector"):
        return [*causes, Cause("spec.selector", "FieldValueRequired", "Required value")]
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selectors.matches(selectors.parse_label_selector(spec["selector"]) or (), labels):
        text = f"Invalid value: {labels}: `selector` does not match template `labels`"
        causes.append(Cause("spec.template.metadata.labels", "FieldValueInvalid", text))
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        causes.append(Cause("spec.replicas", "FieldValueInvalid", text))
    return causes


_VALIDATORS: dict[str, Callable[[Obj, Obj | None], list[Cause]]] = {
    kinds.PODS.resource: _validate_pod,
    kinds.NODES.resource: _validate_node,
    kinds.POD_DISRUPTION_BUDGETS.resource: _validate_budget,
    kinds.CUSTOM_RESOURCE_DEFINITIONS.resource: custom_resources.validate_definition,
}
