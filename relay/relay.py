"""The relay: what watchers see becomes hints on the bus, coalesced, at least once.

It keeps no state beyond its memory. Whatever it misses while it is away is found by the functions' own sweeps, and two
relays at once only say things twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from relay.batches import Batches
from relay.blocked_drains import BlockedDrains
from relay.change_detection import ChangeDetector
from relay.publisher import Publisher
from relay.watched_kinds import KINDS
from relay.watcher import LONGEST_WAIT, Watcher
from shared import hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mypy_boto3_events import EventBridgeClient

    from relay.watched_kinds import Change
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

AGAIN = timedelta(minutes=1)
"""How often what is still pending or still not up is told again."""


class Relay:
    """Watches one cluster and sends to one bus. An actor of the local world, and a process in a cluster.

    ``now`` is the time of a change; ``longest_wait`` the longest pause of a watcher between tries (seconds);
    ``changed`` is called after each change, so that a loop can wake up. Thread-safe, but only one thread
    may call :meth:`step`.
    """

    def __init__(
        self,
        client: Client,
        events: EventBridgeClient,
        *,
        bus: str,
        cluster: str,
        now: Callable[[], datetime],
        longest_wait: float = LONGEST_WAIT,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._publisher = Publisher(events, bus=bus, cluster=cluster)
        self._now = now
        self._changed = changed
        self._lock = threading.RLock()
        self._noticer = ChangeDetector()
        self._drains = BlockedDrains()
        self._batches = Batches()
        self._again: dict[str, datetime] = {}
        self._versions: dict[Resource, int] = {}
        self.sent: Counter[str] = Counter()
        """Keys sent, by kind of hint, for the log and for tests."""
        self.watchers = tuple(
            Watcher(client, resource, kind, self._sink, longest_wait=longest_wait) for resource, kind in KINDS.items()
        )

    def start(self) -> None:
        """Start watching."""
        for watcher in self.watchers:
            watcher.start()

    def stop(self) -> None:
        """Stop watching, and send what waits, due or not."""
        for watcher in self.watchers:
            watcher.stop()
        for watcher in self.watchers:
            if watcher.is_alive():
                watcher.join()
        self._send(self._now(), everything=True)

    def offer(self, change: Change, now: datetime) -> None:
        """Take note of a change."""
        with self._lock:
            self._drains.see(change)
            for notice in self._noticer.detect(change):
                self._batches.add(notice.about, (notice.key,), now)
            for about, keys in self._noticer.standing.items():
                if not keys:
                    self._again.pop(about, None)
                else:
                    self._again.setdefault(about, now + AGAIN)

    def step(self, now: datetime) -> bool:
        """Send what is due. True if anything was sent, or failed to be."""
        with self._lock:
            for about, moment in list(self._again.items()):
                if moment <= now:
                    self._batches.add(about, sorted(self._noticer.standing[about]), now)
                    self._again[about] = now + AGAIN
            if freed := self._drains.take(now):
                self._batches.add(hints.DRAINS_UNBLOCKED, freed, now)
        return self._send(now)

    def due(self) -> datetime | None:
        """When there is something to send next."""
        with self._lock:
            moments = [*self._again.values(), self._batches.due(), self._drains.due(self._now())]
            return min((moment for moment in moments if moment is not None), default=None)

    def caught_up(self, version_of: Callable[[Resource], int]) -> bool:
        """Whether every change that the server has made so far has been taken note of: a testing aid.

        ``version_of`` gives the resourceVersion of the server's last change of a kind, 0 for a kind that it has no
        object of or doesn't know. Versions are compared as numbers, which real servers don't promise.
        """
        with self._lock:
            return all(self._versions.get(resource, 0) >= version_of(resource) for resource in KINDS)

    @property
    def is_alive(self) -> bool:
        """Whether every watcher runs."""
        return all(watcher.is_alive() for watcher in self.watchers)

    @property
    def waiting(self) -> int:
        """Keys that wait to be sent."""
        with self._lock:
            return len(self._batches)

    def _sink(self, resource: Resource, change: Change | None, version: int | None) -> None:
        with self._lock:
            if change is not None:
                self.offer(change, self._now())
            if version is not None:
                self._versions[resource] = version
        if change is not None:
            self._changed()

    def _send(self, now: datetime, *, everything: bool = False) -> bool:
        """Send without the lock: the bus may be slow, and the watchers must not wait for it."""
        with self._lock:
            taken = self._batches.take(now, everything=everything)
        if not taken:
            return False
        refused = self._publisher.publish(taken, now)
        with self._lock:
            for about, keys in taken.items():
                self.sent[about] += len(keys) - len(refused.get(about, ()))
            if refused:
                self._batches.failed(refused, now)
            else:
                self._batches.sent()
        return True
