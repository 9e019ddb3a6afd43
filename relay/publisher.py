"""Hints onto the bus: PutEvents takes ten entries and 256 KB at once, and can refuse some of them.

What was refused comes back to the caller as keys, to wait with the others. An entry's size is reckoned as AWS does:
14 bytes for the time, then source, detail type and detail in UTF-8 ("Calculating Amazon EventBridge event size").
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared import hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

ENTRIES = 10
BYTES = 256 * 1024
_TIME_BYTES = 14

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """One entry: a kind of hint and at most :data:`shared.hints.MAX_KEYS` keys."""

    about: str
    keys: tuple[str, ...]
    entry: PutEventsRequestEntryTypeDef

    @property
    def size(self) -> int:
        """Bytes, as AWS counts them."""
        return _TIME_BYTES + len(hints.RELAY) + len(self.about) + len(self.entry.get("Detail", "").encode())


def outgoing(waiting: Mapping[str, tuple[str, ...]], *, cluster: str, bus: str, now: datetime) -> Iterator[Outgoing]:
    """The entries for these keys; several where a kind has more than fit into one hint."""
    for about, keys in waiting.items():
        for start in range(0, len(keys), hints.MAX_KEYS):
            some = keys[start : start + hints.MAX_KEYS]
            entry = hints.put_events_entry(about, cluster=cluster, keys=some, time=now, bus=bus, source=hints.RELAY)
            yield Outgoing(about=about, keys=some, entry=entry)


def calls(entries: Iterable[Outgoing]) -> Iterator[tuple[Outgoing, ...]]:
    """The entries in groups that one PutEvents takes."""
    group: list[Outgoing] = []
    size = 0
    for one in entries:
        if group and (len(group) == ENTRIES or size + one.size > BYTES):
            yield tuple(group)
            group, size = [], 0
        group.append(one)
        size += one.size
    if group:
        yield tuple(group)


class Publisher:
    """Sends to one bus."""

    def __init__(self, events: EventBridgeClient, *, bus: str, cluster: str) -> None:
        self._events = events
        self._bus = bus
        self._cluster = cluster

    def publish(self, waiting: Mapping[str, tuple[str, ...]], now: datetime) -> dict[str, tuple[str, ...]]:
        """Send the keys; the answer is those that were not accepted."""
        refused: dict[str, list[str]] = {}
        for group in calls(outgoing(waiting, cluster=self._cluster, bus=self._bus, now=now)):
            for one in self._put(group):
                refused.setdefault(one.about, []).extend(one.keys)
        return {about: tuple(keys) for about, keys in refused.items()}

    def _put(self, group: tuple[Outgoing, ...]) -> list[Outgoing]:
        try:
            answer = self._events.put_events(Entries=[one.entry for one in group])
        except (BotoCoreError, ClientError) as error:
            _log.warning("the bus didn't take %d entries, which are sent again: %s", len(group), error)
            return list(group)
        results = answer.get("Entries", [])
        refused = [one for one, result in zip(group, results, strict=True) if result.get("ErrorCode")]
        if refused:
            codes = sorted({str(result["ErrorCode"]) for result in results if result.get("ErrorCode")})
            _log.warning("the bus refused %d entries, which are sent again: %s", len(refused), ", ".join(codes))
        return refused
