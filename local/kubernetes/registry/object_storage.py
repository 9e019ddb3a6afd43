"""Objects, their versions and their kinds: what the store keeps, before any rule about changing it.

Every change goes through one place, which gives it a version, remembers it, notes owners, and tells whoever subscribed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from local.kubernetes import errors, kinds, selectors
from local.kubernetes.objects import Change, Key, Obj
from local.kubernetes.registry import custom_resources
from local.kubernetes.registry.watch_cache import HISTORY_SIZE, WatchCache, in_order

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from local.kubernetes.kinds import Kind

Objs = list[Obj]
Changes = list[Change]
_Kinds = list["Kind"]
_Names = list[str]
_Located = list[tuple["Kind", Obj]]

FIRST_VERSION = 1000
"""Where versions start: above any that a test calls too old."""


class Objects:
    """The objects of a cluster. Every method may be called from any thread; ``lock`` makes several one step."""

    def __init__(self, now: Callable[[], datetime], history: int = HISTORY_SIZE) -> None:
        """``history`` is how many changes each resource remembers."""
        self.lock = threading.RLock()
        self.now = now
        self.version = FIRST_VERSION
        self._history = history
        self._tables: dict[str, WatchCache] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        self._dependents: dict[str, set[tuple[str, Key]]] = {}
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in kinds.BUILT_IN}
        self._definitions: dict[tuple[str, str, str], custom_resources.Definition] = {}

    def kind(self, api_version: str, kind: str) -> Kind:
        """The kind of that name, built in or custom.

        Raises:
            ApiError: 404, it is not served.
        """
        group, _, version = api_version.rpartition("/")
        with self.lock:
            for served in self._kinds.values():
                if (served.group, served.version, served.kind) == (group, version, kind):
                    return served
        raise errors.no_such_path()

    def definition(self, kind: Kind) -> custom_resources.Definition | None:
        """How a custom kind is defined; None for a built-in one."""
        return self._definitions.get((kind.group, kind.version, kind.plural)) if kind.custom else None

    def served(self) -> _Kinds:
        """Every kind that is served now, core group first."""
        with self.lock:
            return list(self._kinds.values())

    def version_of(self, kind: Kind) -> int:
        """The version of that kind's last change."""
        with self.lock:
            return self._table(kind).version

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Obj:
        """The object.

        Raises:
            ApiError: 404.
        """
        with self.lock:
            return self._seen(kind, self._existing(kind, (namespace, name)))

    def find(self, kind: Kind, name: str, *, namespace: str = "") -> Obj | None:
        """The object, or None."""
        with self.lock:
            found = self._table(kind).get((namespace, name))
            return None if found is None else self._seen(kind, found)

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
            ApiError: 400 a selector can't be read; 410 the version is too old.
        """
        with self.lock:
            table = self._table(kind)
            if version is not None and version < table.version:
                found = table.at(version, namespace)
            elif kind.resource == kinds.PODS.resource and (node := _node_selected(fields)) is not None:
                found = table.indexed(node, namespace)
            else:
                found = table.all(namespace)
        definition = self.definition(kind)
        selected = selectors.predicate(kind, labels, fields, definition.selectable if definition else ())
        if selected is not None:
            found = [obj for obj in found if selected(obj)]
        return [self._seen(kind, obj) for obj in found] if kind.custom else found

    def changes_since(self, kind: Kind | None, version: int) -> Changes:
        """The changes after that version, oldest first; of every kind for None.

        Raises:
            ApiError: 410, the history does not reach back so far.
        """
        with self.lock:
            if kind is not None:
                return self._table(kind).since(version)
            return in_order(table.since(max(version, FIRST_VERSION)) for table in self._tables.values())

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back on every change, under the lock and in order; the callback must be quick. Returns how to stop."""
        with self.lock:
            self._subscribers.append(callback)

        def stop() -> None:
            with self.lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return stop

    def compact(self) -> None:
        """Forget every resource's history: watches from older versions get 410."""
        with self.lock:
            for table in self._tables.values():
                table.forget()

    def dependents(self, uid: str) -> _Located:
        """The objects that name this uid as an owner."""
        with self.lock:
            found: _Located = []
            for resource, key in sorted(self._dependents.get(uid, ())):
                obj = self._tables[resource].get(key)
                if obj is not None:
                    found.append((self.storage_kind(resource), obj))
            return found

    def owner_uids(self) -> _Names:
        """Every uid that some object names as its owner."""
        with self.lock:
            return sorted(self._dependents)

    def storage_kind(self, resource: str) -> Kind:
        """Any served version of the resource ``plural.group``.

        Raises:
            ApiError: 404, it is not served.
        """
        with self.lock:
            for kind in self._kinds.values():
                if kind.resource == resource:
                    return kind
        raise errors.no_such_path()

    def everything_in(self, namespace: str) -> _Located:
        """Every object of a namespace."""
        with self.lock:
            here = {kind.resource: kind for kind in self._kinds.values() if kind.namespaced}
            return [
                (here[resource], obj)
                for resource, table in self._tables.items()
                if resource in here
                for obj in table.all(namespace)
            ]

    def _served(self, kind: Kind) -> Kind:
        served = self._kinds.get((kind.group, kind.version, kind.plural))
        if served is None:
            raise errors.no_such_path()
        return served

    def _table(self, kind: Kind) -> WatchCache:
        self._served(kind)
        table = self._tables.get(kind.resource)
        if table is None:
            index = _node_of if kind.resource == kinds.PODS.resource else None
            table = self._tables[kind.resource] = WatchCache(FIRST_VERSION, index, history=self._history)
        return table

    def _existing(self, kind: Kind, key: Key) -> Obj:
        found = self._table(kind).get(key)
        if found is None:
            raise errors.not_found(kind, key[1])
        return found

    @staticmethod
    def _seen(kind: Kind, obj: Obj) -> Obj:
        return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}

    def _write(self, kind: Kind, what: Literal["ADDED", "MODIFIED", "DELETED"], new: Obj, old: Obj | None) -> Obj:
        self.version += 1
        stored = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        change = Change(what, stored, self.version, kind, old)
        key = (stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
        self._table(kind).record(key, change)
        self._note_owners(kind.resource, key, change)
        for callback in tuple(self._subscribers):
            callback(change)
        self._react(change)
        return stored

    def _react(self, change: Change) -> None:
        """What follows from a change at once: kinds come and go with their definitions."""
        if change.kind.resource == kinds.CUSTOM_RESOURCE_DEFINITIONS.resource:
            self._redefine(change)

    def _redefine(self, change: Change) -> None:
        spec = change.object["spec"]
        for at in [at for at in self._definitions if (at[0], at[2]) == (spec["group"], spec["names"]["plural"])]:
            if change.type == "DELETED":
                kind = self._kinds[at]
                for obj in self._table(kind).all():
                    self._write(kind, "DELETED", obj, obj)
            del self._definitions[at], self._kinds[at]
        if change.type == "DELETED":
            return
        for definition in custom_resources.definitions(change.object):
            kind = definition.kind
            self._definitions[kind.group, kind.version, kind.plural] = definition
            self._kinds[kind.group, kind.version, kind.plural] = kind

    def _note_owners(self, resource: str, key: Key, change: Change) -> None:
        before = _owner_uids(change.previous)
        after = _owner_uids(None if change.type == "DELETED" else change.object)
        for uid in before - after:
            self._dependents[uid].discard((resource, key))
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add((resource, key))


def _owner_uids(obj: Obj | None) -> frozenset[str]:
    owners = obj["metadata"].get("ownerReferences") if obj else None
    return frozenset(owner["uid"] for owner in owners) if owners else frozenset()


def _node_selected(fields: str) -> str | None:
    """The node of a selector that is exactly ``spec.nodeName=…``."""
    name, sign, node = fields.partition("=")
    return node if name == "spec.nodeName" and sign and not node.startswith("=") and "," not in node else None


def _node_of(pod: Obj) -> str:
    node: str = (pod.get("spec") or {}).get("nodeName") or ""
    return node
