"""A store of the embedded API server whose objects are set to recorded states, and which can undo a request."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from local.kubernetes.objects import Change
from local.kubernetes.registry.object_storage import ObjectStorage
from local.kubernetes.registry.standard_storage import StandardStorage
from local.kubernetes.registry.store import Store
from local.kubernetes.registry.watch_cache import HISTORY_SIZE

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.real.recording import Revision


class ReplayedStore(Store):
    """A store whose objects are set to recorded states, and which can undo what a request has changed.

    It has no garbage collector and no disruption controller: their writes are in the recording.
    """

    first_version = 0

    def __init__(self) -> None:
        # Not Store's: the recording has the namespaces and priority classes.
        StandardStorage.__init__(self, lambda: self.time, HISTORY_SIZE, random.Random(0))  # noqa: S311 (uids of a test)
        self.time = datetime(2000, 1, 1, tzinfo=UTC)
        self._changes: list[Change] = []
        self.subscribe(self._changes.append)

    def state_of(self, obj: Obj) -> Obj | None:
        """The present state of that object; None if it doesn't exist."""
        kind, metadata = self._kind_of(obj), obj["metadata"]
        return None if kind is None else self.find(kind, metadata["name"], namespace=metadata.get("namespace", ""))

    def set(self, revision: Revision) -> None:
        """Set the object to its state at that revision, if its kind is served."""
        obj = revision.object
        kind = self._kind_of(obj)
        self.version = revision.number - 1
        if kind is not None:
            key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            self._write(kind, revision.type, {**obj, "apiVersion": kind.api_version}, self._cache(kind).get(key))
        self.version = revision.number
        self._changes.clear()

    def undo(self) -> list[Change]:
        """Undo the changes since the last revision. Returns them, oldest first."""
        undone = self._changes.copy()
        for change in reversed(undone):
            self._undo(change)
        self._changes.clear()
        return undone

    def _undo(self, change: Change) -> None:
        kind, before, after = change.kind, change.previous, change.object
        match change.type:
            case "ADDED":
                reverse = Change("DELETED", after, change.version, kind, after)
            case "DELETED":
                reverse = Change("ADDED", before or after, change.version, kind)
            case _:
                reverse = Change("MODIFIED", before or after, change.version, kind, after)
        metadata = after["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        cache = self._cache(kind)
        cache.record(key, reverse)
        for _ in range(2):
            cache._history.pop()
        self.version = change.version - 1
        cache.version = cache._history[-1].version if cache._history else self.first_version
        self._index_owners(kind.resource, key, reverse)
        ObjectStorage._after_change(self, reverse)

    def _kind_of(self, obj: Obj) -> Kind | None:
        group = obj["apiVersion"].rpartition("/")[0]
        return next((k for k in self.served() if (k.group, k.kind) == (group, obj["kind"])), None)

    def _after_change(self, change: Change) -> None:
        ObjectStorage._after_change(self, change)

    def _after_deletion_began(self, kind: Kind, obj: Obj) -> None: ...

    def _after_removal(self, kind: Kind, removed: Obj) -> None: ...
