"""Owners and their dependents: what goes when its owner goes, what is orphaned, and when a namespace is empty.

A real garbage collector works some moments later; here the consequences of a removal follow at once, under the same
lock, so that a world's state is settled after every write. What comes to be without an owner is found by a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_FOREGROUND = "foregroundDeletion"


def after_removal(store: Store, kind: Kind, gone: Obj) -> None:
    """Collect the dependents of what is gone, and finish owners and namespaces that waited for it."""
    for dependent_kind, dependent in store.dependents(gone["metadata"]["uid"]):
        _let_go(store, dependent_kind, dependent)
    for owner in gone["metadata"].get("ownerReferences") or []:
        _finish_foreground(store, owner, gone["metadata"].get("namespace", ""))
    namespace = gone["metadata"].get("namespace")
    if namespace and kind.namespaced:
        _finish_namespace(store, namespace)


def _let_go(store: Store, kind: Kind, dependent: Obj) -> None:
    """Delete it in the background if no owner is left, else forget the owners that are gone."""
    metadata = dependent["metadata"]
    kept = [owner for owner in metadata["ownerReferences"] if _exists(store, owner, metadata.get("namespace", ""))]
    if kept:
        store.write(kind, {**dependent, "metadata": {**metadata, "ownerReferences": kept}}, dependent)
    elif "deletionTimestamp" not in metadata:
        store.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""), propagation="Background")


def _exists(store: Store, owner: Obj, namespace: str) -> bool:
    found = _owner(store, owner, namespace)
    return found is not None


def _owner(store: Store, owner: Obj, namespace: str) -> tuple[Kind, Obj] | None:
    group, _, version = owner["apiVersion"].rpartition("/")
    for kind in store.served():
        if (kind.group, kind.kind) == (group, owner["kind"]) and version:
            obj = store.find(kind, owner["name"], namespace=namespace if kind.namespaced else "")
            return (kind, obj) if obj is not None and obj["metadata"]["uid"] == owner["uid"] else None
    return None


def orphan(store: Store, owner: Obj) -> None:
    """Take the owner out of its dependents' references, so that they outlive it."""
    uid = owner["metadata"]["uid"]
    for kind, dependent in store.dependents(uid):
        metadata = dict(dependent["metadata"])
        kept = [o for o in metadata["ownerReferences"] if o["uid"] != uid]
        metadata.pop("ownerReferences")
        if kept:
            metadata["ownerReferences"] = kept
        store.write(kind, {**dependent, "metadata": metadata}, dependent)


def blocks(store: Store, owner: Obj) -> bool:
    """Whether anything depends on it, so that a foreground deletion has to wait."""
    return bool(store.dependents(owner["metadata"]["uid"]))


def after_deletion_began(store: Store, kind: Kind, obj: Obj) -> None:
    """Go on with a deletion that waits: empty a namespace, delete a foreground owner's dependents."""
    if kind.resource == kinds.NAMESPACES.resource:
        name = obj["metadata"]["name"]
        for content_kind, content in store.everything_in(name):
            if store.find(content_kind, content["metadata"]["name"], namespace=name) is not None:
                store.delete(content_kind, content["metadata"]["name"], namespace=name)
        _finish_namespace(store, name)
    if _FOREGROUND in obj["metadata"].get("finalizers", ()):
        for dependent_kind, dependent in store.dependents(obj["metadata"]["uid"]):
            metadata = dependent["metadata"]
            where = metadata.get("namespace", "")
            if store.find(dependent_kind, metadata["name"], namespace=where) is not None:
                store.delete(dependent_kind, metadata["name"], namespace=where, propagation="Foreground")


def _finish_foreground(store: Store, owner: Obj, namespace: str) -> None:
    found = _owner(store, owner, namespace)
    if found is None or _FOREGROUND not in found[1]["metadata"].get("finalizers", ()):
        return
    kind, obj = found
    if store.dependents(obj["metadata"]["uid"]):
        return
    finalizers = [name for name in obj["metadata"]["finalizers"] if name != _FOREGROUND]
    store.patch(
        kind,
        obj["metadata"]["name"],
        {"metadata": {"finalizers": finalizers or None}},
        namespace=obj["metadata"].get("namespace", ""),
    )


def _finish_namespace(store: Store, name: str) -> None:
    space = store.find(kinds.NAMESPACES, name)
    if space is None or "deletionTimestamp" not in space["metadata"] or store.everything_in(name):
        return
    if not space["metadata"].get("finalizers"):
        store.remove(kinds.NAMESPACES, space)


def collect(store: Store) -> bool:
    """Sweep: delete what names only owners that don't exist. True if anything was done."""
    before = store.version
    for uid in store.owner_uids():
        for kind, dependent in store.dependents(uid):
            metadata = dependent["metadata"]
            present = [_exists(store, owner, metadata.get("namespace", "")) for owner in metadata["ownerReferences"]]
            if not all(present) and "deletionTimestamp" not in metadata:
                _let_go(store, kind, dependent)
    return store.version != before
