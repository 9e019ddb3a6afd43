"""The part of the functions' caches that a process's worlds share: values that depend on nothing but equal inputs.

On Lambda each function's process makes its own. Here all functions run in one process, and tests in hundreds of worlds
with the same instance types, so making them again for each function takes longer than most of what is tested.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

_MAX_ENTRIES = 16
"""Of each cache: some more than the node classes and NodePools of a world."""


class _RecentEntries(dict["Hashable", Any]):
    """The entries that were set last."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def __setitem__(self, key: Hashable, value: object) -> None:
        with self._lock:
            self.pop(key, None)
            super().__setitem__(key, value)
            if len(self) > _MAX_ENTRIES:
                self.pop(next(iter(self)))


INSTANCE_TYPES: Mapping[str, Any] = {"instance_types": _RecentEntries(), "adjusted_types": _RecentEntries()}
"""By their names in ``shared.instance_types``: lists of instance types, each with the inputs that it was made of."""
