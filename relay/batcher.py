"""When hints are sent: together, after a second without a new one, and after ten seconds at the latest; and how.

Hints that someone waits for are sent earlier.

Pending hints are a set of object keys for each type of hint, so memory is bounded by the number of objects, however
often they change and however long the bus can't be reached.

PutEvents takes ten entries and 256 KB per call, and can reject some of them. Keys that were not accepted are returned
to the caller, which sends them again. The size of an entry is computed as AWS documents it: 14 bytes for the time, plus
source, detail type and detail in UTF-8 ("Calculating Amazon EventBridge event size").
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import hints
from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

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
MAX_ENTRIES = 10
MAX_BYTES = 256 * 1024
_TIME_BYTES = 14

_log = logging.getLogger(__name__)


class _Batch(MutableStruct):
    first_added: datetime
    last_added: datetime
    idle_duration: timedelta
    max_duration: timedelta
    keys: dict[str, None] = {}

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


# --- PutEvents ---


class Entry(Struct, kw_only=True):
    """One PutEvents entry: a hint with at most :data:`shared.base.hints.MAX_KEYS` keys."""

    detail_type: str
    keys: tuple[str, ...]
    request: PutEventsRequestEntryTypeDef

    @property
    def size(self) -> int:
        """Bytes, as AWS counts them."""
        return _TIME_BYTES + len(hints.RELAY) + len(self.detail_type) + len(self.request.get("Detail", "").encode())


def entries(pending: Mapping[str, tuple[str, ...]], *, cluster: str, bus: str, now: datetime) -> Iterator[Entry]:
    """The entries for these keys, by type of hint; several where a type has more keys than fit into one hint."""
    for detail_type, keys in pending.items():
        for start in range(0, len(keys), hints.MAX_KEYS):
            chunk = keys[start : start + hints.MAX_KEYS]
            request = hints.put_events_entry(
                detail_type, cluster=cluster, keys=chunk, time=now, bus=bus, source=hints.RELAY
            )
            yield Entry(detail_type=detail_type, keys=chunk, request=request)


def put_events_batches(all_entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
    """The entries, grouped so that each group fits into one PutEvents call."""
    batch: list[Entry] = []
    size = 0
    for entry in all_entries:
        if batch and (len(batch) == MAX_ENTRIES or size + entry.size > MAX_BYTES):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(entry)
        size += entry.size
    if batch:
        yield tuple(batch)


class Publisher:
    """Sends hints to one event bus."""

    def __init__(self, events: EventBridgeClient, *, bus: str, cluster: str) -> None:
        self._events = events
        self._bus = bus
        self._cluster = cluster

    def publish(self, pending: Mapping[str, tuple[str, ...]], now: datetime) -> dict[str, tuple[str, ...]]:
        """Send the keys, by type of hint; returns those that were not accepted."""
        rejected: dict[str, list[str]] = {}
        for batch in put_events_batches(entries(pending, cluster=self._cluster, bus=self._bus, now=now)):
            for entry in self._put_events(batch):
                rejected.setdefault(entry.detail_type, []).extend(entry.keys)
        return {detail_type: tuple(keys) for detail_type, keys in rejected.items()}

    def _put_events(self, batch: tuple[Entry, ...]) -> list[Entry]:
        try:
            response = self._events.put_events(Entries=[entry.request for entry in batch])
        except (BotoCoreError, ClientError) as error:
            _log.warning("PutEvents failed for %d entries; they are sent again: %s", len(batch), error)
            return list(batch)
        results = response.get("Entries", [])
        rejected = [entry for entry, result in zip(batch, results, strict=True) if result.get("ErrorCode")]
        if rejected:
            codes = sorted({str(result["ErrorCode"]) for result in results if result.get("ErrorCode")})
            _log.warning("the event bus rejected %d entries; they are sent again: %s", len(rejected), ", ".join(codes))
        return rejected
