"""The objects of one resource in key order, and the history of their changes.

A change holds the object before it, so the state at an older version is computed by walking the history backwards. The
pages of a list thus show one consistent state without snapshots. The history is bounded; older versions are answered
with 410.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from local.kubernetes import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from local.kubernetes.objects import Change, Key, Obj

HISTORY_SIZE = 50_000
"""Changes that are kept for each resource."""

_version = attrgetter("version")


class WatchCache:
    """All objects of one resource. The store's lock must be held around every call."""

    def __init__(self, version: int, index: Callable[[Obj], str] | None = None, *, history: int = HISTORY_SIZE) -> None:
        self.version = version
        self._oldest_version = version
        self._history: deque[Change] = deque()
        self._limit = history
        self._objects: dict[Key, Obj] = {}
        self._keys: list[Key] = []
        self._all: list[Obj] | None = None
        self._index = index
        self._indexed: dict[str, set[Key]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key: Key) -> Obj | None:
        """The object, or None."""
        return self._objects.get(key)

    def record(self, key: Key, change: Change) -> None:
        """Record a change."""
        self._all = None
        if change.type == "DELETED":
            del self._objects[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self._objects:
                insort(self._keys, key)
            self._objects[key] = change.object
        if self._index:
            self._reindex(self._index, key, change)
        self.version = change.version
        self._history.append(change)
        if len(self._history) > self._limit:
            self._oldest_version = self._history.popleft().version

    def _reindex(self, index: Callable[[Obj], str], key: Key, change: Change) -> None:
        if change.previous is not None:
            self._indexed[index(change.previous)].discard(key)
        if change.type != "DELETED":
            self._indexed.setdefault(index(change.object), set()).add(key)

    def all(self, namespace: str | None = None) -> list[Obj]:
        """Every object, or those of a namespace, in order of key."""
        if namespace is None:
            if self._all is None:
                self._all = [self._objects[key] for key in self._keys]
            return self._all.copy()
        return [self._objects[key] for key in self._span(self._keys, namespace)]

    def indexed(self, value: str, namespace: str | None = None) -> list[Obj]:
        """The objects whose indexed field has that value, in order of key."""
        keys = sorted(self._indexed.get(value, ()))
        return [self._objects[key] for key in keys if namespace is None or key[0] == namespace]

    def at(self, version: int, namespace: str | None = None) -> list[Obj]:
        """Every object as of that version.

        Raises:
            ApiError: 410, the history no longer has that version.
        """
        if version >= self.version:
            return self.all(namespace)
        if version < self._oldest_version:
            raise errors.continue_expired()
        objects = dict(self._objects)
        for change in reversed(self._history):
            if change.version <= version:
                break
            metadata = change.object["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            if change.previous is None:
                del objects[key]
            else:
                objects[key] = change.previous
        return [objects[key] for key in self._span(sorted(objects), namespace)]

    def since(self, version: int) -> list[Change]:
        """The changes after that version, oldest first.

        Raises:
            ApiError: 410, the history no longer has that version.
        """
        if version >= self.version:
            return []
        if version < self._oldest_version:
            raise errors.expired(version)
        newer: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def drop_history(self) -> None:
        """Drop the history, as a compaction does: watches from older versions get 410."""
        self._history.clear()
        self._oldest_version = self.version

    @staticmethod
    def _span(keys: list[Key], namespace: str | None) -> list[Key]:
        if namespace is None:
            return keys
        return keys[bisect_left(keys, (namespace, "")) : bisect_right(keys, (namespace, "\U0010ffff"))]


def in_order(changes: Iterable[list[Change]]) -> list[Change]:
    """Changes of many resources, oldest first."""
    return sorted((change for resource_changes in changes for change in resource_changes), key=_version)
