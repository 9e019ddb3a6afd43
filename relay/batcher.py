"""When hints are sent: together, after a second without a new one, and after ten seconds at the latest. Pure.

Hints that someone waits for are sent earlier.

Pending hints are a set of object keys for each type of hint, so memory is bounded by the number of objects, however
often they change and however long the bus can't be reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

IDLE_DURATION = timedelta(seconds=1)
MAX_DURATION = timedelta(seconds=10)
_SHORT = timedelta(seconds=1)
MAX_DURATION_BY_TYPE = {
    hints.NODES_CHANGED: _SHORT,
    hints.NODE_POOLS_CHANGED: _SHORT,
    hints.NODES_DELETING: _SHORT,
    hints.NODE_CLAIMS_DELETING: _SHORT,
}
"""Pods can't be scheduled to a joining node until it is reconciled, and it changes often while many nodes join. Whoever
edits a NodePool looks at what follows. A node that is deleted takes pods until it is tainted."""
IDLE_DURATION_BY_TYPE = {
    hints.NODES_DELETING: timedelta(seconds=0.2),
    hints.NODE_CLAIMS_DELETING: timedelta(seconds=0.2),
}
INITIAL_BACKOFF = timedelta(seconds=1)
MAX_BACKOFF = timedelta(seconds=60)


@dataclass
class _Batch:
    first_added: datetime
    last_added: datetime
    idle_duration: timedelta
    max_duration: timedelta
    keys: dict[str, None] = field(default_factory=dict)

    @property
    def due(self) -> datetime:
        return min(self.last_added + self.idle_duration, self.first_added + self.max_duration)


class Batcher:
    """Pending hints, by their type. Not thread-safe."""

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}
        self._failures = 0
        self._backoff_until: datetime | None = None

    def __len__(self) -> int:
        """The number of pending keys."""
        return sum(len(batch.keys) for batch in self._batches.values())

    def add(self, detail_type: str, keys: Iterable[str], now: datetime) -> None:
        """Add object keys to the pending ones of a type of hint."""
        batch = self._batches.get(detail_type)
        if batch is None:
            batch = self._batches[detail_type] = _Batch(
                first_added=now,
                last_added=now,
                idle_duration=IDLE_DURATION_BY_TYPE.get(detail_type, IDLE_DURATION),
                max_duration=MAX_DURATION_BY_TYPE.get(detail_type, MAX_DURATION),
            )
        batch.last_added = now
        batch.keys.update(dict.fromkeys(keys))

    def due(self) -> datetime | None:
        """When the next batch is due; None when nothing is pending."""
        if not self._batches:
            return None
        first = min(batch.due for batch in self._batches.values())
        return first if self._backoff_until is None else max(first, self._backoff_until)

    def take(self, now: datetime, *, flush: bool = False) -> dict[str, tuple[str, ...]]:
        """Remove and return the keys to send now, by type of hint. ``flush``: also those that aren't due."""
        if not flush and self._backoff_until is not None and now < self._backoff_until:
            return {}
        due = [detail_type for detail_type, batch in self._batches.items() if flush or batch.due <= now]
        return {detail_type: tuple(self._batches.pop(detail_type).keys) for detail_type in due}

    def sent(self) -> None:
        """Reset the backoff: everything that was taken has been sent."""
        self._failures = 0
        self._backoff_until = None

    def failed(self, keys: dict[str, tuple[str, ...]], now: datetime) -> None:
        """Add keys that were not sent again; everything waits twice as long as after the previous failure."""
        for detail_type, unsent in keys.items():
            self.add(detail_type, unsent, now)
        self._backoff_until = now + min(INITIAL_BACKOFF * 2 ** min(self._failures, 10), MAX_BACKOFF)
        self._failures += 1
