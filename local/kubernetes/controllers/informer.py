"""What changed in the store since a controller last looked: the informer of the local world.

Every controller works on changes, never on full lists, so that thousands of pods cost only what happens to them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from local.kubernetes.objects import Change

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.registry.store import Store


class Informer:
    """Changes of some kinds, oldest first; at first everything that is there, as ADDED, kind by kind as asked for."""

    def __init__(self, store: Store, *kinds: Kind) -> None:
        self._kinds = frozenset(kind.resource for kind in kinds)
        self._changes: deque[Change] = deque()
        with store.lock:
            for kind in kinds:
                self._changes.extend(Change("ADDED", obj, store.version, kind, None) for obj in store.list(kind))
            self.close = store.subscribe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.kind.resource in self._kinds:
            self._changes.append(change)

    def take(self) -> list[Change]:
        """All changes since the last call."""
        taken: list[Change] = []
        while self._changes:
            taken.append(self._changes.popleft())
        return taken
