"""The garbage collector: deletes or orphans dependents with their owners, and finishes namespaces that are empty.

A real garbage collector works some time later. Here the consequences of a removal follow at once under the same lock,
so that the state is consistent after every write. Objects created with a missing owner are found by a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_FOREGROUND_FINALIZER = "foregroundDeletion"


def after_removal(store: Store, kind: Kind, removed: Obj) -> None:
    """Collect the dependents of a removed object, and finish owners and namespaces that waited for it."""
    for dependent_kind, dependent in store.dependents(removed["metadata"]["uid"]):
        _collect_dependent(store, dependent_kind, dependent)
    for owner in removed["metadata"].get("ownerReferences") or []:
        _finish_foreground(store, owner, removed["metadata"].get("namespace", ""))
    namespace = removed["metadata"].get("namespace")
    if namespace and kind.namespaced:
        _finish_namespace(store, namespace)


def _collect_dependent(store: Store, kind: Kind, dependent: Obj) -> None:
    """Delete the object in the background if it has no owner left, else remove the references to missing owners."""
    metadata = dependent["metadata"]
    kept = [owner for owner in metadata["ownerReferences"] if _exists(store, owner, metadata.get("namespace", ""))]
    if kept:
        store.write(kind, {**dependent, "metadata": {**metadata, "ownerReferences": kept}}, dependent)
    elif "deletionTimestamp" not in metadata:
        store.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""), propagation="Background")


def _exists(store: Store, owner: Obj, namespace: str) -> bool:
    return _owner(store, owner, namespace) is not None


def _owner(store: Store, owner: Obj, namespace: str) -> tuple[Kind, Obj] | None:
    group, _, version = owner["apiVersion"].rpartition("/")
    for kind in store.served():
        if (kind.group, kind.kind) == (group, owner["kind"]) and version:
            obj = store.find(kind, owner["name"], namespace=namespace if kind.namespaced else "")
            return (kind, obj) if obj is not None and obj["metadata"]["uid"] == owner["uid"] else None
    return None


def orphan(store: Store, owner: Obj) -> None:
    """Remove the references to the owner from its dependents, so that they are kept."""
    uid = owner["metadata"]["uid"]
    for kind, dependent in store.dependents(uid):
        metadata = dict(dependent["metadata"])
        kept = [o for o in metadata["ownerReferences"] if o["uid"] != uid]
        metadata.pop("ownerReferences")
        if kept:
            metadata["ownerReferences"] = kept
        store.write(kind, {**dependent, "metadata": metadata}, dependent)


def has_dependents(store: Store, owner: Obj) -> bool:
    """Whether any object names it as an owner, so that a foreground deletion must wait."""
    return bool(store.dependents(owner["metadata"]["uid"]))


def after_deletion_began(store: Store, kind: Kind, obj: Obj) -> None:
    """Continue a deletion that waits: delete a namespace's objects, or a foreground owner's dependents."""
    if kind.resource == kinds.NAMESPACES.resource:
        name = obj["metadata"]["name"]
        for content_kind, content in store.objects_in(name):
            if store.find(content_kind, content["metadata"]["name"], namespace=name) is not None:
                store.delete(content_kind, content["metadata"]["name"], namespace=name)
        _finish_namespace(store, name)
    if _FOREGROUND_FINALIZER in obj["metadata"].get("finalizers", ()):
        for dependent_kind, dependent in store.dependents(obj["metadata"]["uid"]):
            metadata = dependent["metadata"]
            namespace = metadata.get("namespace", "")
            if store.find(dependent_kind, metadata["name"], namespace=namespace) is not None:
                store.delete(dependent_kind, metadata["name"], namespace=namespace, propagation="Foreground")


def _finish_foreground(store: Store, owner: Obj, namespace: str) -> None:
    located = _owner(store, owner, namespace)
    if located is None or _FOREGROUND_FINALIZER not in located[1]["metadata"].get("finalizers", ()):
        return
    kind, obj = located
    if store.dependents(obj["metadata"]["uid"]):
        return
    finalizers = [name for name in obj["metadata"]["finalizers"] if name != _FOREGROUND_FINALIZER]
    store.patch(
        kind,
        obj["metadata"]["name"],
        {"metadata": {"finalizers": finalizers or None}},
        namespace=obj["metadata"].get("namespace", ""),
    )


def _finish_namespace(store: Store, name: str) -> None:
    namespace = store.find(kinds.NAMESPACES, name)
    if namespace is None or "deletionTimestamp" not in namespace["metadata"] or store.objects_in(name):
        return
    if not namespace["metadata"].get("finalizers"):
        store.remove(kinds.NAMESPACES, namespace)


def collect(store: Store) -> bool:
    """Delete all objects whose owners don't exist. True if anything was done."""
    before = store.version
    for uid in store.owner_uids():
        for kind, dependent in store.dependents(uid):
            metadata = dependent["metadata"]
            present = [_exists(store, owner, metadata.get("namespace", "")) for owner in metadata["ownerReferences"]]
            if not all(present) and "deletionTimestamp" not in metadata:
                _collect_dependent(store, kind, dependent)
    return store.version != before
