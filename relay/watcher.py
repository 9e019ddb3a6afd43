"""One thread per kind: list, then watch from the list's resourceVersion, for as long as the relay runs.

A watch that ends is resumed from the last resourceVersion (bookmarks keep it fresh). After an expired one everything is
listed again and compared; so it is after one that the server hasn't reached (etcd was restored from a backup). When the
cluster doesn't have the kind or the API server doesn't answer, the watcher tries again with backoff while the others
continue.
"""

from __future__ import annotations

import contextvars
import logging
import random
import threading
from typing import TYPE_CHECKING, Protocol

import msgspec

from relay.watched_kinds import Change, KindListed, ObjectChanged, Versioned, Watched
from shared.cluster import listing
from shared.cluster.errors import ApiError, ExpiredError, NotFoundError
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.cluster.client import Client
    from shared.cluster.resources import Resource
    from shared.cluster.watch import Watch, WatchEvent

INITIAL_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
_WATCH_SECONDS = 300

_log = logging.getLogger(__name__)
_random = random.SystemRandom()


class ChangeHandler(Protocol):
    """Handles what a watcher observes; ``version`` is the kind's resourceVersion after it, None if unknown."""

    def __call__(self, resource: Resource, change: Change | None, version: int | None) -> None:
        """Called in the watcher's thread."""
        ...


class Watcher(threading.Thread):
    """Watches one kind. ``max_backoff`` is the longest wait between tries, in seconds; ``jitter`` is in [0, 1)."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[Watched],
        handler: ChangeHandler,
        *,
        max_backoff: float = MAX_BACKOFF_SECONDS,
        jitter: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__(name=f"watch {resource.plural}", daemon=True)
        self._client = client
        self._resource = resource
        self._kind = kind
        self._handler = handler
        self._max_backoff = max_backoff
        self._jitter = jitter
        self._stopping = threading.Event()
        self._watch: Watch | None = None
        self._version = ""
        self._context = contextvars.copy_context()
        self.lists = 0
        """How many times everything was listed."""
        self.is_settled = False
        """Whether the kind was listed once, or the cluster doesn't have it."""

    def stop(self) -> None:
        """End the thread, also while it waits for the server."""
        self._stopping.set()
        watch = self._watch
        if watch is not None:
            watch.close()

    def run(self) -> None:
        """List and watch until stopped, with the context variables of the thread that created the watcher."""
        self._context.run(self._run)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                if not self._version:
                    self._list()
                self._follow_watch()
                failures = 0
                # A server that ends every watch at once must not be called in a tight loop.
                self._back_off(0)
            except ExpiredError:
                _log.info("the resourceVersion of the watch of %s expired; listing again", self._resource.plural)
                self._version = ""
            except NotFoundError:
                # The kind's CustomResourceDefinition may be created later.
                self._version = ""
                self.is_settled = True
                failures += 1
                self._back_off(failures)
            except ApiError as error:
                if error.is_ahead:
                    self._version = ""
                _log.warning("watching %s failed; trying again: %s", self._resource.plural, error)
                failures += 1
                self._back_off(failures)

    def _back_off(self, failures: int) -> None:
        backoff = min(INITIAL_BACKOFF_SECONDS * 2 ** min(failures, 20), self._max_backoff)
        self._stopping.wait(backoff * (0.5 + self._jitter() / 2))

    def _list(self) -> None:
        listed = listing.list_objects(self._client, self._resource, self._kind)
        for invalid in listed.invalid:
            _log_invalid(invalid)
        self.lists += 1
        change = KindListed(resource=self._resource, objects=listed.objects)
        self._handler(self._resource, change, as_number(listed.version))
        self._version = listed.version
        self.is_settled = True

    def _follow_watch(self) -> None:
        watch = self._client.watch(self._resource.path(), resource_version=self._version, timeout=_WATCH_SECONDS)
        self._watch = watch
        if self._stopping.is_set():
            watch.close()
        try:
            for event in watch:
                self._handle_event(event)
        finally:
            self._watch = None
            watch.close()

    def _handle_event(self, event: WatchEvent) -> None:
        raw = bytes(event.object)
        version = msgspec.json.decode(raw, type=Versioned).metadata.resource_version
        change: Change | None = None
        if event.type != "BOOKMARK":
            decoded = listing.decode(raw, self._resource, self._kind)
            if isinstance(decoded, InvalidObject):
                _log_invalid(decoded)
            else:
                change = ObjectChanged(resource=self._resource, object=decoded, deleted=event.type == "DELETED")
        self._handler(self._resource, change, as_number(version))
        self._version = version


def _log_invalid(invalid: InvalidObject) -> None:
    _log.warning("%s is invalid and ignored: %s", invalid.ref, "; ".join(invalid.problems))


def as_number(version: str) -> int | None:
    """A resourceVersion as a number; None if it isn't one.

    From Kubernetes 1.35 on they are numbers that may be compared (KEP-5504), and etcd's revisions always were.
    """
    return int(version) if version.isdigit() else None
