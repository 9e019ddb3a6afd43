"""When hints leave: together, after a second of quiet, and after ten at the latest; of nodes after one. Pure.

What waits is a set of keys a kind of hint, so memory is bounded by the number of objects however often they change, and
however long the bus can't be reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from shared import hints

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

IDLE = timedelta(seconds=1)
LONGEST = timedelta(seconds=10)
LONGEST_OF = {hints.NODES_CHANGED: timedelta(seconds=1)}
"""A node that joins keeps its pods away until it is looked at, and changes several times while many others do."""
FIRST_BACKOFF = timedelta(seconds=1)
LONGEST_BACKOFF = timedelta(seconds=60)


@dataclass
class _Batch:
    first: datetime
    last: datetime
    longest: timedelta
    keys: dict[str, None] = field(default_factory=dict)

    @property
    def due(self) -> datetime:
        return min(self.last + IDLE, self.first + self.longest)


class Batches:
    """The hints that wait. Not thread-safe."""

    def __init__(self) -> None:
        self._batches: dict[str, _Batch] = {}
        self._failures = 0
        self._not_before: datetime | None = None

    def __len__(self) -> int:
        """Keys that wait."""
        return sum(len(batch.keys) for batch in self._batches.values())

    def add(self, about: str, keys: Iterable[str], now: datetime) -> None:
        """Let these wait with the others of their kind."""
        batch = self._batches.get(about)
        if batch is None:
            batch = self._batches[about] = _Batch(first=now, last=now, longest=LONGEST_OF.get(about, LONGEST))
        batch.last = now
        batch.keys.update(dict.fromkeys(keys))

    def due(self) -> datetime | None:
        """When the next batch leaves; None when nothing waits."""
        if not self._batches:
            return None
        first = min(batch.due for batch in self._batches.values())
        return first if self._not_before is None else max(first, self._not_before)

    def take(self, now: datetime, *, everything: bool = False) -> dict[str, tuple[str, ...]]:
        """The keys to send now, by kind of hint; they wait no longer. ``everything``: due or not."""
        if not everything and self._not_before is not None and now < self._not_before:
            return {}
        ready = [about for about, batch in self._batches.items() if everything or batch.due <= now]
        return {about: tuple(self._batches.pop(about).keys) for about in ready}

    def sent(self) -> None:
        """What was taken went out."""
        self._failures = 0
        self._not_before = None

    def failed(self, keys: dict[str, tuple[str, ...]], now: datetime) -> None:
        """These didn't go out: they wait again, and everything waits twice as long as after the last failure."""
        for about, some in keys.items():
            self.add(about, some, now)
        self._not_before = now + min(FIRST_BACKOFF * 2 ** min(self._failures, 10), LONGEST_BACKOFF)
        self._failures += 1
