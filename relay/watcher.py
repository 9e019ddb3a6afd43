"""One thread a kind: list, then watch from the list's version, for as long as the relay runs.

A watch that ends is resumed from the last version seen (bookmarks keep that fresh); one whose version has expired is
started over with a list, and the difference found. A kind that the cluster doesn't have, or a server that doesn't
answer, is tried again with growing waits while the other kinds go on.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Protocol

import msgspec

from relay.watched_kinds import Change, Changed, Listed, Versioned, Watched
from shared.cluster import listing
from shared.cluster.errors import ApiError, ExpiredError, NotFoundError
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.cluster.client import Client, Watch, WatchEvent
    from shared.cluster.resources import Resource

FIRST_WAIT = 0.2
LONGEST_WAIT = 30.0
_SECONDS = 300

_log = logging.getLogger(__name__)
_random = random.SystemRandom()


class Sink(Protocol):
    """Takes what a watcher sees; ``version`` is the kind's version after it, None if unknown."""

    def __call__(self, resource: Resource, change: Change | None, version: int | None) -> None:
        """Called in the watcher's thread."""
        ...


class Watcher(threading.Thread):
    """Watches one kind. ``longest_wait`` is the longest pause between tries, in seconds; ``jitter`` is in [0, 1)."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[Watched],
        sink: Sink,
        *,
        longest_wait: float = LONGEST_WAIT,
        jitter: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__(name=f"watch {resource.plural}", daemon=True)
        self._client = client
        self._resource = resource
        self._kind = kind
        self._sink = sink
        self._longest_wait = longest_wait
        self._jitter = jitter
        self._stopping = threading.Event()
        self._watch: Watch | None = None
        self._version = ""
        self.lists = 0
        """How many times everything was listed."""

    def stop(self) -> None:
        """End the thread, also while it waits for the server."""
        self._stopping.set()
        watch = self._watch
        if watch is not None:
            watch.close()

    def run(self) -> None:
        """List and watch until stopped."""
        failures = 0
        while not self._stopping.is_set():
            try:
                if not self._version:
                    self._list()
                self._follow()
                failures = 0
                # a server that ends every watch at once must not be asked without end
                self._pause(0)
            except ExpiredError:
                _log.info("the watch of %s fell too far behind and starts over", self._resource.plural)
                self._version = ""
            except NotFoundError:
                # no such kind (yet): its CustomResourceDefinition may come
                self._version = ""
                failures += 1
                self._pause(failures)
            except ApiError as error:
                _log.warning("watching %s failed and is tried again: %s", self._resource.plural, error)
                failures += 1
                self._pause(failures)

    def _pause(self, failures: int) -> None:
        longest = min(FIRST_WAIT * 2 ** min(failures, 20), self._longest_wait)
        self._stopping.wait(longest * (0.5 + self._jitter() / 2))

    def _list(self) -> None:
        listed = listing.list_objects(self._client, self._resource, self._kind)
        for invalid in listed.invalid:
            _log.warning("%s is passed over: %s", invalid.ref, "; ".join(invalid.problems))
        self.lists += 1
        self._sink(self._resource, Listed(resource=self._resource, objects=listed.objects), _number(listed.version))
        self._version = listed.version

    def _follow(self) -> None:
        watch = self._client.watch(self._resource.path(), resource_version=self._version, timeout=_SECONDS)
        self._watch = watch
        if self._stopping.is_set():
            watch.close()
        try:
            for event in watch:
                self._take(event)
        finally:
            self._watch = None
            watch.close()

    def _take(self, event: WatchEvent) -> None:
        raw = bytes(event.object)
        version = msgspec.json.decode(raw, type=Versioned).metadata.resource_version
        change: Change | None = None
        if event.type != "BOOKMARK":
            found = listing.decode(raw, self._resource, self._kind)
            if isinstance(found, InvalidObject):
                _log.warning("%s is passed over: %s", found.ref, "; ".join(found.problems))
            else:
                change = Changed(resource=self._resource, object=found, gone=event.type == "DELETED")
        self._sink(self._resource, change, _number(version))
        self._version = version


def _number(version: str) -> int | None:
    """Versions are opaque, but numbers on every server there is; the comparison is only a testing aid."""
    return int(version) if version.isdigit() else None
