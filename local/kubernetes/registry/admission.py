"""Admission: completes new and changed objects, and restricts updates to what their subresource allows.

Sources: the strategies in kubernetes ``pkg/registry`` and the admission plugins that are on by default.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from local.kubernetes import errors, kinds
from local.kubernetes.registry import custom_resources, limit_ranger, pod_strategy, runtime_classes
from local.kubernetes.registry.defaults import set_defaults, set_initial_status

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.object_storage import ObjectStorage

_PROTECTED_NAMESPACES = frozenset(("default", "kube-system", "kube-public"))
_NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def on_create(kind: Kind, obj: Obj, storage: ObjectStorage) -> None:
    """Fill in the defaults of a new object and admit it, in place.

    Raises:
        ApiError: 403, it refers to an object that does not exist.
    """
    definition = storage.definition(kind)
    if definition is not None:
        if kind.has_status:
            obj.pop("status", None)
        definition.prune_and_default(obj)
        return
    if kind.resource == kinds.PODS.resource:
        pod_strategy.default_spec(obj.setdefault("spec", {}))
        pod_strategy.default_pod_only(obj["spec"])
        if "runtimeClassName" in obj["spec"]:
            runtime_classes.admit(obj, storage.list(kinds.RUNTIME_CLASSES))
        limit_ranger.admit(obj, storage.list(kinds.LIMIT_RANGES, namespace=obj["metadata"]["namespace"]))
        pod_strategy.admit(obj, storage.list(kinds.PRIORITY_CLASSES), storage.now())
        return
    if kind.has_status and kind.resource != kinds.NODES.resource:
        obj.pop("status", None)
    set_defaults(kind, obj)
    set_initial_status(kind, obj)
    _admit(kind, obj, storage)


def after_validation(kind: Kind, new: Obj) -> None:
    """Complete a valid new object in place, or refuse it.

    Raises:
        ApiError: 403.
    """
    if kind.resource == kinds.PODS.resource:
        runtime_classes.check_overhead(new)
    elif kind.resource == kinds.JOBS.resource:
        _label_like_pods(new)


def _admit(kind: Kind, obj: Obj, storage: ObjectStorage) -> None:
    """The admission of kinds that need more than defaults."""
    match kind.resource:
        case kinds.SECRETS.resource:
            _complete_secret(obj)
        case kinds.LIMIT_RANGES.resource:
            limit_ranger.default_limit_range(obj)
        case kinds.NODES.resource:
            obj["spec"]["taints"] = _with_not_ready_taint(obj["spec"].get("taints") or [])
        case kinds.PERSISTENT_VOLUME_CLAIMS.resource if "storageClassName" not in obj["spec"]:
            if name := _default_storage_class(storage):
                obj["spec"]["storageClassName"] = name
        case kinds.JOBS.resource:
            _label_job(obj)
        case kinds.CUSTOM_RESOURCE_DEFINITIONS.resource:
            custom_resources.default_definition(obj)


def _complete_secret(secret: Obj) -> None:
    """Set the type of a secret, and put its texts among its data."""
    secret.setdefault("type", "Opaque")
    if string_data := secret.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in string_data.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _label_job(job: Obj) -> None:
    """Give a new job its selector, and its pods' labels."""
    spec, metadata = job["spec"], job["metadata"]
    _label_like_pods(job)
    if spec["manualSelector"]:
        return
    uid, name = metadata["uid"], metadata["name"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    selector = spec.get("selector") or {}
    selected = {"batch.kubernetes.io/controller-uid": uid, **(selector.get("matchLabels") or {})}
    spec["selector"] = {**selector, "matchLabels": selected}
    template = spec.setdefault("template", {})
    own = template.get("metadata") or {}
    template["metadata"] = {**own, "labels": {**labels, **(own.get("labels") or {})}}


def _label_like_pods(job: Obj) -> None:
    """Give a Job without labels those of its template."""
    labels = ((job["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def _with_not_ready_taint(taints: list[Obj]) -> list[Obj]:
    """A new node's taints, with the not-ready taint of the TaintNodesByCondition admission plugin."""
    if any(t.get("key") == _NOT_READY_TAINT["key"] and t.get("effect") == _NOT_READY_TAINT["effect"] for t in taints):
        return taints
    return [*taints, dict(_NOT_READY_TAINT)]


def prepare_for_update(kind: Kind, new: Obj, old: Obj, subresource: str) -> Obj:
    """The object with only the changes that the subresource allows: its status, a pod's resources, or the rest."""
    if subresource == "resize":
        return pod_strategy.resized(new, old)
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


def on_update(kind: Kind, new: Obj, old: Obj, storage: ObjectStorage, subresource: str) -> None:
    """Fill in the defaults of a changed object, in place."""
    definition = storage.definition(kind)
    if definition is not None:
        definition.prune_and_default(new)
    elif kind.resource == kinds.PODS.resource:
        pod_strategy.default_spec(new.setdefault("spec", {}))
        pod_strategy.default_pod_only(new["spec"])
        if subresource:
            pod_strategy.default_status(new.setdefault("status", {}), old.get("status") or {})
        else:
            pod_strategy.default_tolerations(new["spec"])
    else:
        set_defaults(kind, new)
        if kind.resource == kinds.LIMIT_RANGES.resource:
            limit_ranger.default_limit_range(new)
        if kind.resource == kinds.SECRETS.resource:
            _complete_secret(new)
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


def _default_storage_class(storage: ObjectStorage) -> str:
    annotation = "storageclass.kubernetes.io/is-default-class"
    for storage_class in storage.list(kinds.STORAGE_CLASSES):
        if (storage_class["metadata"].get("annotations") or {}).get(annotation) == "true":
            name: str = storage_class["metadata"]["name"]
            return name
    return ""
