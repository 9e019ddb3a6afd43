"""The informer of a controller: the changes in the store since it last asked.

Controllers work on changes, never on full lists, so the cost of thousands of pods is that of their changes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from local.kubernetes.objects import Change

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.registry.store import Store


class Informer:
    """Changes of some kinds, oldest first. It begins with every present object as ADDED, in the order of the kinds."""

    def __init__(self, store: Store, *kinds: Kind) -> None:
        self._resources = frozenset(kind.resource for kind in kinds)
        self._changes: deque[Change] = deque()
        with store.lock:
            for kind in kinds:
                self._changes.extend(Change("ADDED", obj, store.version, kind, None) for obj in store.list(kind))
            self.close = store.subscribe(self._enqueue)

    def _enqueue(self, change: Change) -> None:
        if change.kind.resource in self._resources:
            self._changes.append(change)

    def pop_changes(self) -> list[Change]:
        """All changes since the last call."""
        changes: list[Change] = []
        while self._changes:
            changes.append(self._changes.popleft())
        return changes
