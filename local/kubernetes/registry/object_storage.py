"""The storage below the store: objects with their versions, kinds and owners, without rules for changing them.

Every change goes through one method, which gives it a version, records it, indexes owners and calls subscribers.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal, NamedTuple

from local.kubernetes import errors, kinds, selectors
from local.kubernetes.objects import Change, Key, Obj
from local.kubernetes.registry import custom_resources
from local.kubernetes.registry.watch_cache import HISTORY_SIZE, WatchCache, in_order

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime

    from local.kubernetes.kinds import Kind

Objs = list[Obj]
Changes = list[Change]
_Kinds = list["Kind"]
_Names = list[str]
_Located = list[tuple["Kind", Obj]]

FIRST_VERSION = 1000
"""The first version; above any version that tests use as too old."""


class Backup(NamedTuple):
    """The objects of a storage at a version, each with its kind."""

    version: int
    objects: list[tuple[Kind, Obj]]


class ObjectStorage:
    """The objects of a cluster. Methods can be called from any thread; hold ``lock`` to make several calls atomic."""

    first_version = FIRST_VERSION

    def __init__(self, now: Callable[[], datetime], history: int = HISTORY_SIZE) -> None:
        """``history`` is the number of changes that are kept for each resource."""
        self.lock = threading.RLock()
        self.update_lock: AbstractContextManager[object] = self.lock
        """Held while an object is read, changed and written."""
        self.mutate: Callable[[Kind, Obj], Obj] = lambda _kind, obj: obj
        """What mutating admission makes of each object that is created or changed."""
        self.now = now
        self.version = self.first_version
        self._history = history
        self._caches: dict[str, WatchCache] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        self._dependents: dict[str, set[tuple[str, Key]]] = {}
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in kinds.BUILT_IN}
        self._kinds_by_name = {(kind.group, kind.version, kind.kind): kind for kind in kinds.BUILT_IN}
        self._definitions: dict[tuple[str, str, str], custom_resources.Definition] = {}

    def kind(self, api_version: str, kind: str) -> Kind:
        """The kind of that name.

        Raises:
            ApiError: 404, no such kind is served.
        """
        group, _, version = api_version.rpartition("/")
        with self.lock:
            served = self._kinds_by_name.get((group, version, kind))
        if served is None:
            raise errors.no_such_path()
        return served

    def definition(self, kind: Kind) -> custom_resources.Definition | None:
        """The definition of a custom kind; None for a built-in kind."""
        return self._definitions.get((kind.group, kind.version, kind.plural)) if kind.custom else None

    def served(self) -> _Kinds:
        """Every served kind, core group first."""
        with self.lock:
            return list(self._kinds.values())

    def version_of(self, kind: Kind) -> int:
        """The version of that kind's last change."""
        with self.lock:
            return self._cache(kind).version

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Obj:
        """The object.

        Raises:
            ApiError: 404.
        """
        with self.lock:
            return self._in_version(kind, self._existing(kind, (namespace, name)))

    def find(self, kind: Kind, name: str, *, namespace: str = "") -> Obj | None:
        """The object, or None."""
        with self.lock:
            obj = self._cache(kind).get((namespace, name))
            return None if obj is None else self._in_version(kind, obj)

    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        version: int | None = None,
    ) -> Objs:
        """The objects that both selectors select, in order of namespace and name; as of ``version`` if it is given.

        Raises:
            ApiError: 400 a selector is malformed; 410 the version is too old.
        """
        with self.lock:
            cache = self._cache(kind)
            if version is not None and version < cache.version:
                objects = cache.at(version, namespace)
            elif kind.resource == kinds.PODS.resource and (node := _selected_node(fields)) is not None:
                objects = cache.indexed(node, namespace)
            else:
                objects = cache.all(namespace)
        definition = self.definition(kind)
        selects = selectors.predicate(kind, labels, fields, definition.selectable if definition else ())
        if selects is not None:
            objects = [obj for obj in objects if selects(obj)]
        return [self._in_version(kind, obj) for obj in objects] if kind.custom else objects

    def changes_since(self, kind: Kind | None, version: int) -> Changes:
        """The changes of a kind after that version, oldest first; None: of all kinds.

        Raises:
            ApiError: 410, the history no longer has that version.
        """
        with self.lock:
            if kind is not None:
                return self._cache(kind).since(version)
            return in_order(cache.since(max(version, self.first_version)) for cache in self._caches.values())

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back on every change, in order and with the lock held. Returns a function that ends the subscription."""
        with self.lock:
            self._subscribers.append(callback)

        def stop() -> None:
            with self.lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return stop

    def compact(self) -> None:
        """Drop the history of every resource: watches from older versions get 410."""
        with self.lock:
            for cache in self._caches.values():
                cache.drop_history()

    def backup(self) -> Backup:
        """Every object as it is now, as ``etcdctl snapshot save`` keeps it."""
        with self.lock:
            kinds_of = {kind.resource: kind for kind in self._kinds.values()}
            objects = [(kinds_of[r], obj) for r, cache in self._caches.items() if r in kinds_of for obj in cache.all()]
            return Backup(version=self.version, objects=objects)

    def restore(self, backup: Backup) -> None:
        """Go back to the backup's objects and version. Subscribers get the differences, as controllers that restart.

        Watches must have been stopped; the history is gone.
        """
        with self.lock:
            before = {_location(kind, obj): (kind, obj) for kind, obj in self.backup().objects}
            after = {_location(kind, obj): (kind, obj) for kind, obj in backup.objects}
            changes = [
                Change("DELETED", obj, backup.version, kind, obj)
                for at, (kind, obj) in before.items()
                if at not in after
            ]
            for at, (kind, obj) in after.items():
                old = before[at][1] if at in before else None
                if obj is not old:
                    changes.append(Change("MODIFIED" if old else "ADDED", obj, backup.version, kind, old))
            self.version = backup.version
            for change in changes:
                self._cache(change.kind).record(_location(change.kind, change.object)[1], change)
                self._index_owners(change.kind.resource, _location(change.kind, change.object)[1], change)
            for cache in self._caches.values():
                cache.version = backup.version
                cache.drop_history()
            for change in changes:
                for callback in tuple(self._subscribers):
                    callback(change)
                self._after_change(change)

    def dependents(self, uid: str) -> _Located:
        """The objects that name this uid as an owner."""
        with self.lock:
            dependents: _Located = []
            for resource, key in sorted(self._dependents.get(uid, ())):
                obj = self._caches[resource].get(key)
                if obj is not None:
                    dependents.append((self.storage_kind(resource), obj))
            return dependents

    def owner_uids(self) -> _Names:
        """Every uid that an object names as its owner."""
        with self.lock:
            return sorted(self._dependents)

    def storage_kind(self, resource: str) -> Kind:
        """Any served version of the resource ``plural.group``.

        Raises:
            ApiError: 404, no such kind is served.
        """
        with self.lock:
            for kind in self._kinds.values():
                if kind.resource == resource:
                    return kind
        raise errors.no_such_path()

    def objects_in(self, namespace: str) -> _Located:
        """Every object of a namespace."""
        with self.lock:
            namespaced = {kind.resource: kind for kind in self._kinds.values() if kind.namespaced}
            return [
                (namespaced[resource], obj)
                for resource, cache in self._caches.items()
                if resource in namespaced
                for obj in cache.all(namespace)
            ]

    def _served(self, kind: Kind) -> Kind:
        served = self._kinds.get((kind.group, kind.version, kind.plural))
        if served is None:
            raise errors.no_such_path()
        return served

    def _cache(self, kind: Kind) -> WatchCache:
        self._served(kind)
        cache = self._caches.get(kind.resource)
        if cache is None:
            index = _node_of if kind.resource == kinds.PODS.resource else None
            cache = self._caches[kind.resource] = WatchCache(self.first_version, index, history=self._history)
        return cache

    def _existing(self, kind: Kind, key: Key) -> Obj:
        obj = self._cache(kind).get(key)
        if obj is None:
            raise errors.not_found(kind, key[1])
        return obj

    @staticmethod
    def _in_version(kind: Kind, obj: Obj) -> Obj:
        return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}

    def _write(self, kind: Kind, type_: Literal["ADDED", "MODIFIED", "DELETED"], new: Obj, old: Obj | None) -> Obj:
        self.version += 1
        if type_ != "DELETED":
            new = self.mutate(kind, new)
        stored = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        change = Change(type_, stored, self.version, kind, old)
        key = (stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
        self._cache(kind).record(key, change)
        self._index_owners(kind.resource, key, change)
        for callback in tuple(self._subscribers):
            callback(change)
        self._after_change(change)
        return stored

    def _after_change(self, change: Change) -> None:
        """The immediate consequences of a change: kinds are served or removed with their definitions."""
        if change.kind.resource == kinds.CUSTOM_RESOURCE_DEFINITIONS.resource:
            self._update_kinds(change)

    def _update_kinds(self, change: Change) -> None:
        spec = change.object["spec"]
        for key in [key for key in self._definitions if (key[0], key[2]) == (spec["group"], spec["names"]["plural"])]:
            if change.type == "DELETED":
                kind = self._kinds[key]
                for obj in self._cache(kind).all():
                    self._write(kind, "DELETED", obj, obj)
            del self._definitions[key], self._kinds_by_name[(key[0], key[1], self._kinds[key].kind)], self._kinds[key]
        if change.type == "DELETED":
            return
        for definition in custom_resources.definitions(change.object):
            kind = definition.kind
            self._definitions[kind.group, kind.version, kind.plural] = definition
            self._kinds[kind.group, kind.version, kind.plural] = kind
            self._kinds_by_name[kind.group, kind.version, kind.kind] = kind

    def _index_owners(self, resource: str, key: Key, change: Change) -> None:
        before = _owner_uids(change.previous)
        after = _owner_uids(None if change.type == "DELETED" else change.object)
        for uid in before - after:
            self._dependents[uid].discard((resource, key))
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add((resource, key))


def _location(kind: Kind, obj: Obj) -> tuple[str, Key]:
    metadata = obj["metadata"]
    return kind.resource, (metadata.get("namespace", ""), metadata["name"])


def _owner_uids(obj: Obj | None) -> frozenset[str]:
    owners = obj["metadata"].get("ownerReferences") if obj else None
    return frozenset(owner["uid"] for owner in owners) if owners else frozenset()


def _selected_node(fields: str) -> str | None:
    """The node of a field selector that is exactly ``spec.nodeName=…``; else None."""
    name, sign, node = fields.partition("=")
    return node if name == "spec.nodeName" and sign and not node.startswith("=") and "," not in node else None


def _node_of(pod: Obj) -> str:
    node: str = (pod.get("spec") or {}).get("nodeName") or ""
    return node
