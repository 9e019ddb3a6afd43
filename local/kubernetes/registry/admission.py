"""What happens to an object between request and storage: defaults, what a subresource may change, validity.

Built-in kinds get what decisions and people read, custom kinds what their CustomResourceDefinition says. Sources: the
strategies in kubernetes ``pkg/registry`` and the admission plugins that are on by default.
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

_KEPT_NAMESPACES = frozenset(("default", "kube-system", "kube-public"))
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_SCALED = frozenset(kind.resource for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS))
_TEMPLATED = _SCALED | {kinds.DAEMON_SETS.resource, kinds.JOBS.resource}
_QUARTER = "25%"


def on_create(kind: Kind, obj: Obj, store: Store) -> None:
    """Complete a new object in place.

    Raises:
        ApiError: 403, it names something that must exist and does not.
    """
    definition = store.definition(kind)
    if definition is not None:
        if kind.has_status:
            obj.pop("status", None)
        definition.complete(obj)
        return
    if kind.resource == kinds.PODS.resource:
        pod_strategy.admit(obj, store.list(kinds.PRIORITY_CLASSES))
        return
    if kind.has_status and kind.resource != kinds.NODES.resource:
        obj.pop("status", None)
    _default(kind, obj)
    starting = _STARTING_STATUS.get(kind.resource)
    if starting is not None:
        obj["status"] = dict(starting)
    _admit(kind, obj, store)


def _admit(kind: Kind, obj: Obj, store: Store) -> None:
    """What one kind alone needs when it is new."""
    match kind.resource:
        case kinds.SECRETS.resource:
            obj.setdefault("type", "Opaque")
            if written := obj.pop("stringData", None):
                encoded = {name: base64.b64encode(text.encode()).decode() for name, text in written.items()}
                obj["data"] = {**(obj.get("data") or {}), **encoded}
        case kinds.NODES.resource:
            obj["spec"]["taints"] = _with_not_ready(obj["spec"].get("taints") or [])
        case kinds.PERSISTENT_VOLUME_CLAIMS.resource if "storageClassName" not in obj["spec"]:
            if name := _default_storage_class(store):
                obj["spec"]["storageClassName"] = name
        case kinds.CUSTOM_RESOURCE_DEFINITIONS.resource:
            custom_resources.default_definition(obj)


def _with_not_ready(taints: list[Obj]) -> list[Obj]:
    """A new node's taints: the TaintNodesByCondition admission marks it until its kubelet is ready."""
    if any(t.get("key") == _NOT_READY["key"] and t.get("effect") == _NOT_READY["effect"] for t in taints):
        return taints
    return [*taints, dict(_NOT_READY)]


def split(kind: Kind, new: Obj, old: Obj, subresource: str) -> Obj:
    """What a write through that subresource may change: status alone, or everything but status."""
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
    """Complete a changed object in place."""
    definition = store.definition(kind)
    if definition is not None:
        definition.complete(new)
    elif kind.resource == kinds.PODS.resource:
        pod_strategy.default_spec(new.setdefault("spec", {}))
    else:
        _default(kind, new)
        if kind.resource == kinds.CUSTOM_RESOURCE_DEFINITIONS.resource and new.get("spec") != old.get("spec"):
            custom_resources.default_definition(new)


def on_delete(kind: Kind, obj: Obj) -> None:
    """Refuse to delete what a cluster can't be without.

    Raises:
        ApiError: 403.
    """
    name = obj["metadata"]["name"]
    if kind.resource == kinds.NAMESPACES.resource and name in _KEPT_NAMESPACES:
        raise errors.forbidden(kind, name, "this namespace may not be deleted")


def terminating(kind: Kind, obj: Obj) -> Obj:
    """The object as its deletion begins."""
    if kind.resource == kinds.NAMESPACES.resource:
        return {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}
    return obj


def faults(kind: Kind, new: Obj, old: Obj | None, store: Store) -> list[Cause]:
    """What is wrong with the object beyond its metadata; ``old`` is None for a new one."""
    definition = store.definition(kind)
    if definition is not None:
        return definition.faults(new, old)
    checks = _FAULTS.get(kind.resource)
    found = checks(new, old) if checks else []
    if kind.resource in _TEMPLATED:
        found = [*found, *_template_faults(kind, new)]
    return found


def _default(kind: Kind, obj: Obj) -> None:
    """Fill in the defaults of a built-in kind other than pods; changes it in place."""
    defaults = _DEFAULTS.get(kind.resource)
    if defaults is not None:
        spec = obj.get("spec")
        obj["spec"] = spec = dict(spec) if isinstance(spec, dict) else {}
        for name, value in defaults.items():
            spec.setdefault(name, value)
    if kind.resource in _TEMPLATED:
        _default_template(kind, obj["spec"])


def _default_template(kind: Kind, spec: Obj) -> None:
    template = spec.get("template")
    if isinstance(template, dict):
        inner = template.setdefault("spec", {})
        pod_strategy.default_spec(inner)
    strategy = spec.get("strategy")
    if kind.resource == kinds.DEPLOYMENTS.resource and isinstance(strategy, dict):
        strategy = {"type": "RollingUpdate", **strategy}
        if strategy["type"] == "RollingUpdate":
            given = strategy.get("rollingUpdate") or {}
            strategy["rollingUpdate"] = {"maxUnavailable": _QUARTER, "maxSurge": _QUARTER, **given}
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

_STARTING_STATUS: dict[str, Obj] = {
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
    marked = "storageclass.kubernetes.io/is-default-class"
    for storage_class in store.list(kinds.STORAGE_CLASSES):
        if (storage_class["metadata"].get("annotations") or {}).get(marked) == "true":
            name: str = storage_class["metadata"]["name"]
            return name
    return ""


def _pod_faults(new: Obj, old: Obj | None) -> list[Cause]:
    return pod_strategy.faults(new) if old is None else pod_strategy.update_faults(new, old)


def _node_faults(new: Obj, old: Obj | None) -> list[Cause]:
    found: list[Cause] = []
    before = ((old or {}).get("spec") or {}).get("providerID")
    after = (new.get("spec") or {}).get("providerID")
    if before and before != after:
        text = 'Forbidden: node updates may not change providerID except from "" to valid'
        found.append(Cause("spec.providerID", "FieldValueForbidden", text))
    for index, taint in enumerate((new.get("spec") or {}).get("taints") or []):
        at = f"spec.taints[{index}]"
        if not taint.get("key"):
            found.append(Cause(f"{at}.key", "FieldValueInvalid", 'Invalid value: "": name part must be non-empty'))
        allowed = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        if taint.get("effect") not in allowed:
            text = f'Unsupported value: "{taint.get("effect", "")}": supported values: ' + ", ".join(
                f'"{name}"' for name in sorted(allowed)
            )
            found.append(Cause(f"{at}.effect", "FieldValueNotSupported", text))
    for name in ("capacity", "allocatable"):
        found.extend(pod_strategy.quantity_faults((new.get("status") or {}).get(name), f"status.{name}"))
    return found


def _budget_faults(new: Obj, _old: Obj | None) -> list[Cause]:
    spec = new.get("spec") or {}
    found: list[Cause] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = "Invalid value: minAvailable and maxUnavailable cannot be both set"
        found.append(Cause("spec", "FieldValueInvalid", text))
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if value is not None and not _is_count_or_percent(value):
            text = f"Invalid value: {_quoted(value)}: must be a non-negative integer or a percentage (e.g. '50%')"
            found.append(Cause(f"spec.{name}", "FieldValueInvalid", text))
    return found


def _is_count_or_percent(value: Any) -> bool:  # noqa: ANN401 (JSON)
    if isinstance(value, str):
        return value.endswith("%") and value[:-1].isdigit()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _quoted(value: Any) -> str:  # noqa: ANN401 (JSON)
    return f'"{value}"' if isinstance(value, str) else str(value)


def _template_faults(kind: Kind, obj: Obj) -> list[Cause]:
    spec = obj["spec"]
    found: list[Cause] = []
    template = spec.get("template") or {}
    inner = {"spec": template.get("spec") or {}}
    found.extend(Cause(f"spec.template.{c.field}", c.reason, c.message) for c in pod_strategy.faults(inner))
    if kind.resource == kinds.JOBS.resource:
        return found
    if not spec.get("selector"):
        return [*found, Cause("spec.selector", "FieldValueRequired", "Required value")]
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selectors.matches(selectors.of_object(spec["selector"]) or (), labels):
        text = f"Invalid value: {labels}: `selector` does not match template `labels`"
        found.append(Cause("spec.template.metadata.labels", "FieldValueInvalid", text))
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        found.append(Cause("spec.replicas", "FieldValueInvalid", text))
    return found


_FAULTS: dict[str, Callable[[Obj, Obj | None], list[Cause]]] = {
    kinds.PODS.resource: _pod_faults,
    kinds.NODES.resource: _node_faults,
    kinds.POD_DISRUPTION_BUDGETS.resource: _budget_faults,
    kinds.CUSTOM_RESOURCE_DEFINITIONS.resource: custom_resources.definition_faults,
}
