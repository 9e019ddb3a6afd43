"""Sends hints to the event bus. PutEvents takes ten entries and 256 KB per call, and can reject some of them.

Keys that were not accepted are returned to the caller, which sends them again. The size of an entry is computed as AWS
documents it: 14 bytes for the time, plus source, detail type and detail in UTF-8 ("Calculating Amazon EventBridge event
size").
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

MAX_ENTRIES = 10
MAX_BYTES = 256 * 1024
_TIME_BYTES = 14

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Entry:
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
