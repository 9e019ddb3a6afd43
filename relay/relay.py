"""The relay: changes that the watchers observe become hints on the event bus, batched, delivered at least once.

State is in memory only. The functions' sweeps find whatever is missed while no relay runs, and two relays at once only
send hints twice.

A relay that succeeds another one defers its hints until it takes over. Then it drops those about changes that the
other one has observed, and has therefore sent.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from relay.batcher import Batcher, Publisher
from relay.blocked_drains import BlockedDrains
from relay.change_detection import ChangeDetector
from relay.nomination_windows import NominationWindows
from relay.watched_kinds import WATCHED_KINDS, KindListed
from relay.watcher import MAX_BACKOFF_SECONDS, Watcher, as_number
from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mypy_boto3_events import EventBridgeClient

    from relay.change_detection import ReconcileRequest
    from relay.watched_kinds import Change
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

REPEAT_INTERVAL = timedelta(minutes=1)
"""How often the hint is repeated for pods that are still pending and nodes that are still not initialized."""


_MAX_RETRIED_PODS = 10


class _Deferred(NamedTuple):
    """A request that isn't to be sent yet, and the kind and resourceVersion of the change that it follows from.

    The version of what a list shows is the object's own. None if it isn't known.
    """

    kind: str
    version: int | None
    request: ReconcileRequest


class Relay:
    """Watches one cluster and sends hints to one event bus.

    ``now`` is the clock; ``max_backoff`` is the longest wait of a watcher between tries (seconds); ``on_change`` is
    called after each change, so that a loop can wake up; ``defers``: nothing is sent before :meth:`take_over`.
    Thread-safe, but only one thread may call :meth:`step`.
    """

    def __init__(
        self,
        client: Client,
        events: EventBridgeClient,
        *,
        bus: str,
        cluster: str,
        now: Callable[[], datetime],
        max_backoff: float = MAX_BACKOFF_SECONDS,
        on_change: Callable[[], None] = lambda: None,
        defers: bool = False,
    ) -> None:
        self._publisher = Publisher(events, bus=bus, cluster=cluster)
        self._now = now
        self._on_change = on_change
        self._lock = threading.RLock()
        self._change_detector = ChangeDetector()
        self._blocked_drains = BlockedDrains()
        self._nomination_windows = NominationWindows()
        self._batcher = Batcher()
        self._repeat_at: dict[str, datetime] = {}
        self._versions: dict[Resource, int] = {}
        self._publishing = False
        self._deferred: list[_Deferred] | None = [] if defers else None
        self.sent: Counter[str] = Counter()
        """The number of keys sent, by type of hint, for the log and for tests."""
        self.watchers = tuple(
            Watcher(client, resource, kind, self._handle_change, max_backoff=max_backoff)
            for resource, kind in WATCHED_KINDS.items()
        )

    def start(self) -> None:
        """Start watching."""
        for watcher in self.watchers:
            watcher.start()

    def announce(self) -> None:
        """Publish that the relay has started, which shows whether it can publish at all."""
        with self._lock:
            self._batcher.add(hints.RELAY_STARTED, (socket.gethostname(),), self._now())

    def stop(self) -> None:
        """Stop watching, and send all pending hints."""
        self.stop_watching()
        self.flush()

    def stop_watching(self) -> None:
        """Stop watching; what was observed stays pending."""
        for watcher in self.watchers:
            watcher.stop()
        for watcher in self.watchers:
            if watcher.is_alive():
                watcher.join()

    def flush(self) -> bool:
        """Send all pending hints now. False if the event bus rejected some, which stay pending."""
        self._send(self._now(), flush=True)
        return not self.pending

    def take_over(self, observed: Mapping[str, int] | None) -> None:
        """Send hints from now on: also the deferred ones, except for changes that the predecessor has ``observed``.

        ``observed`` is the predecessor's, after it has sent everything; None if it hasn't, or if there was none.
        """
        with self._lock:
            deferred, self._deferred = self._deferred or [], None
            for kind, version, request in deferred:
                if observed is None or version is None or version > observed.get(kind, 0):
                    self._batcher.add(request.detail_type, (request.key,), self._now())

    def observe(self, change: Change, now: datetime, version: int | None = None) -> None:
        """Add the hints that follow from a change to the pending ones. ``version`` is the kind's after it."""
        with self._lock:
            self._blocked_drains.observe(change)
            self._nomination_windows.observe(change, now)
            for obj, request in self._change_detector.detect_by_object(change):
                if self._deferred is None:
                    self._batcher.add(request.detail_type, (request.key,), now)
                    continue
                if isinstance(change, KindListed) and obj is not None:
                    version = as_number(obj.metadata.resource_version)
                self._deferred.append(_Deferred(change.resource.plural, version, request))
            for detail_type, keys in self._change_detector.unresolved.items():
                if not keys:
                    self._repeat_at.pop(detail_type, None)
                else:
                    self._repeat_at.setdefault(detail_type, now + REPEAT_INTERVAL)

    def step(self, now: datetime) -> bool:
        """Send the hints that are due. True if anything was sent or failed to be sent."""
        with self._lock:
            for detail_type, moment in list(self._repeat_at.items()):
                if moment <= now:
                    self._batcher.add(detail_type, sorted(self._change_detector.unresolved[detail_type]), now)
                    self._repeat_at[detail_type] = now + REPEAT_INTERVAL
            if unblocked := self._blocked_drains.take_unblocked(now):
                self._batcher.add(hints.DRAINS_UNBLOCKED, unblocked, now)
            repeated = self._nomination_windows.take_due(now)
            if repeated.nodes:
                self._batcher.add(hints.NODES_CHANGED, repeated.nodes, now)
            pods = sorted(self._change_detector.unresolved[hints.PODS_UNSCHEDULABLE]) if repeated.retry_pods else []
            if pods:
                # A decision is about all pods, whichever the hint names.
                self._batcher.add(hints.PODS_UNSCHEDULABLE, pods[:_MAX_RETRIED_PODS], now)
        return self._send(now)

    def due(self) -> datetime | None:
        """When the next hint is due; None when nothing is pending."""
        with self._lock:
            moments = [
                *self._repeat_at.values(),
                self._batcher.due(),
                self._blocked_drains.due(self._now()),
                self._nomination_windows.due(),
            ]
            return min((moment for moment in moments if moment is not None), default=None)

    @property
    def observed(self) -> dict[str, int]:
        """The last observed resourceVersion of each kind that the cluster has, by the kind's plural."""
        with self._lock:
            return {resource.plural: version for resource, version in self._versions.items()}

    @property
    def is_settled(self) -> bool:
        """Whether every kind that the cluster has was listed."""
        return all(watcher.is_settled for watcher in self.watchers)

    def has_observed(self, version_of: Callable[[Resource], int]) -> bool:
        """Whether every change that the API server has made so far was observed: for tests and the local world.

        ``version_of`` gives the resourceVersion of the server's last change of a kind, 0 for a kind without objects and
        for one that the server doesn't have. Versions are compared as numbers, which real servers don't guarantee.
        """
        with self._lock:
            return all(self._versions.get(resource, 0) >= version_of(resource) for resource in WATCHED_KINDS)

    @property
    def is_publishing(self) -> bool:
        """Whether the event bus accepted everything that was sent last; false before the first time."""
        return self._publishing

    @property
    def is_alive(self) -> bool:
        """Whether every watcher runs."""
        return all(watcher.is_alive() for watcher in self.watchers)

    @property
    def pending(self) -> int:
        """The number of keys that are not sent yet."""
        with self._lock:
            return len(self._batcher)

    def _handle_change(self, resource: Resource, change: Change | None, version: int | None) -> None:
        with self._lock:
            if change is not None:
                self.observe(change, self._now(), version)
            if version is not None:
                self._versions[resource] = version
        if change is not None:
            self._on_change()

    def _send(self, now: datetime, *, flush: bool = False) -> bool:
        """Send without the lock: PutEvents may be slow, and the watchers must not wait for it."""
        with self._lock:
            keys_by_type = self._batcher.take(now, flush=flush)
        if not keys_by_type:
            return False
        rejected = self._publisher.publish(keys_by_type, now)
        self._publishing = not rejected
        with self._lock:
            for detail_type, keys in keys_by_type.items():
                self.sent[detail_type] += len(keys) - len(rejected.get(detail_type, ()))
            if rejected:
                self._batcher.failed(rejected, now)
            else:
                self._batcher.sent()
        return True
