"""The garbage collector: deletes or orphans dependents with their owners, and finishes namespaces that are empty.

A real garbage collector works some time later. Here the consequences of a removal follow at once under the same lock,
so that the state is consistent after every write. Objects created with a missing owner are found by a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.registry.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.standard_storage import StandardStorage


def after_removal(storage: StandardStorage, kind: Kind, removed: Obj) -> None:
    """Collect the dependents of a removed object, and finish owners and namespaces that waited for it."""
    for dependent_kind, dependent in storage.dependents(removed["metadata"]["uid"]):
        _collect_dependent(storage, dependent_kind, dependent)
    for owner in removed["metadata"].get("ownerReferences") or []:
        located = _owner(storage, owner, removed["metadata"].get("namespace", ""))
        if located is not None and FOREGROUND_FINALIZER in located[1]["metadata"].get("finalizers", ()):
            _finish_foreground(storage, *located)
    namespace = removed["metadata"].get("namespace")
    if namespace and kind.namespaced:
        _finish_namespace(storage, namespace)


def _collect_dependent(storage: StandardStorage, kind: Kind, dependent: Obj) -> None:
    """Delete the object in the background if it has no owner left, else remove the references to missing owners."""
    metadata = dependent["metadata"]
    kept = [owner for owner in metadata["ownerReferences"] if _exists(storage, owner, metadata.get("namespace", ""))]
    if kept:
        storage.write(kind, {**dependent, "metadata": {**metadata, "ownerReferences": kept}}, dependent)
    elif "deletionTimestamp" not in metadata:
        storage.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""), propagation="Background")


def _exists(storage: StandardStorage, owner: Obj, namespace: str) -> bool:
    return _owner(storage, owner, namespace) is not None


def _owner(storage: StandardStorage, owner: Obj, namespace: str) -> tuple[Kind, Obj] | None:
    group, _, version = owner["apiVersion"].rpartition("/")
    for kind in storage.served():
        if (kind.group, kind.kind) == (group, owner["kind"]) and version:
            obj = storage.find(kind, owner["name"], namespace=namespace if kind.namespaced else "")
            return (kind, obj) if obj is not None and obj["metadata"]["uid"] == owner["uid"] else None
    return None


def _orphan(storage: StandardStorage, owner: Obj) -> None:
    """Remove the references to the owner from its dependents, so that they are kept."""
    uid = owner["metadata"]["uid"]
    for kind, dependent in storage.dependents(uid):
        metadata = dict(dependent["metadata"])
        kept = [o for o in metadata["ownerReferences"] if o["uid"] != uid]
        metadata.pop("ownerReferences")
        if kept:
            metadata["ownerReferences"] = kept
        storage.write(kind, {**dependent, "metadata": metadata}, dependent)


def after_deletion_began(storage: StandardStorage, kind: Kind, obj: Obj) -> None:
    """Continue a deletion that waits: delete a namespace's objects, or a foreground owner's dependents."""
    if kind.resource == kinds.NAMESPACES.resource:
        name = obj["metadata"]["name"]
        for content_kind, content in storage.objects_in(name):
            if storage.find(content_kind, content["metadata"]["name"], namespace=name) is not None:
                storage.delete(content_kind, content["metadata"]["name"], namespace=name)
        _finish_namespace(storage, name)
    finalizers = obj["metadata"].get("finalizers", ())
    if ORPHAN_FINALIZER in finalizers:
        _orphan(storage, obj)
        _remove_finalizer(storage, kind, obj, ORPHAN_FINALIZER)
    if FOREGROUND_FINALIZER in finalizers:
        for dependent_kind, dependent in storage.dependents(obj["metadata"]["uid"]):
            metadata = dependent["metadata"]
            namespace = metadata.get("namespace", "")
            if storage.find(dependent_kind, metadata["name"], namespace=namespace) is not None:
                storage.delete(dependent_kind, metadata["name"], namespace=namespace, propagation="Foreground")
        _finish_foreground(storage, kind, obj)


def _finish_foreground(storage: StandardStorage, kind: Kind, owner: Obj) -> None:
    """Remove the owner's finalizer, unless it has dependents or is gone already."""
    metadata = owner["metadata"]
    present = storage.find(kind, metadata["name"], namespace=metadata.get("namespace", ""))
    if present is not None and not storage.dependents(metadata["uid"]):
        _remove_finalizer(storage, kind, present, FOREGROUND_FINALIZER)


def _remove_finalizer(storage: StandardStorage, kind: Kind, obj: Obj, finalizer: str) -> None:
    metadata = obj["metadata"]
    kept = [name for name in metadata.get("finalizers", ()) if name != finalizer]
    if kept != metadata.get("finalizers", []):
        patch = {"metadata": {"finalizers": kept or None}}
        storage.patch(kind, metadata["name"], patch, namespace=metadata.get("namespace", ""))


def _finish_namespace(storage: StandardStorage, name: str) -> None:
    namespace = storage.find(kinds.NAMESPACES, name)
    if namespace is None or "deletionTimestamp" not in namespace["metadata"] or storage.objects_in(name):
        return
    if not namespace["metadata"].get("finalizers"):
        storage.remove(kinds.NAMESPACES, namespace)


def collect(storage: StandardStorage) -> bool:
    """Delete all objects whose owners don't exist. True if anything was done."""
    before = storage.version
    for uid in storage.owner_uids():
        for kind, dependent in storage.dependents(uid):
            metadata = dependent["metadata"]
            present = [_exists(storage, owner, metadata.get("namespace", "")) for owner in metadata["ownerReferences"]]
            if not all(present) and "deletionTimestamp" not in metadata:
                _collect_dependent(storage, kind, dependent)
    return storage.version != before
