"""Watches: what a client is told, from a version or from a first list on, until its time is up.

An object that begins to match a selector is ADDED to that watch, one that ceases to is DELETED, as on a real server.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import selectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

_PAUSE_SECONDS = 0.5
_BOOKMARK_SECONDS = 30.0
DEFAULT_SECONDS = 2400.0
"""How long a watch lives if its client does not say; a real server picks 30 to 60 minutes."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a client asked to watch."""

    kind: Kind
    namespace: str | None
    labels: str
    fields: str
    since: int | None
    """Changes after this version; None begins with everything that is there."""
    seconds: float
    bookmarks: bool
    announce_end_of_list: bool
    show: Callable[[Obj], Any]
    """How an object is shown: as it is, as metadata, or as a table's row."""


class Watch:
    """One running watch: subscribed at once, then iterated for its lines."""

    def __init__(self, store: Store, wanted: Wanted) -> None:
        """Subscribe.

        Raises:
            ApiError: 400 a selector can't be read; 410 the version is too old.
        """
        self._store = store
        self._wanted = wanted
        self._waiting: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        definition = store.definition(wanted.kind)
        fields = definition.selectable if definition else ()
        self._selected = selectors.predicate(wanted.kind, wanted.labels, wanted.fields, fields)
        resource = wanted.kind.resource

        def note(change: Change) -> None:
            if change.kind.resource == resource:
                self._waiting.put(change)

        with store.lock:
            if wanted.since is None:
                self._first = store.list(
                    wanted.kind, namespace=wanted.namespace, labels=wanted.labels, fields=wanted.fields
                )
            else:
                self._first = []
                for change in store.changes_since(wanted.kind, wanted.since):
                    self._waiting.put(change)
            behind = wanted.since is not None and not self._waiting.empty()
            self._version = wanted.since if behind and wanted.since is not None else store.version
            self._unsubscribe = store.subscribe(note)

    def stop(self) -> None:
        """End the stream, from any thread."""
        self._waiting.put(None)

    def lines(self) -> Iterator[bytes | None]:
        """The events as JSON lines, several at a time when there are; None for a pause."""
        try:
            yield from self._lines()
        finally:
            self._unsubscribe()

    def _lines(self) -> Iterator[bytes | None]:
        wanted = self._wanted
        ends = time.monotonic() + wanted.seconds
        bookmark_at = time.monotonic() + _BOOKMARK_SECONDS
        first = b"".join(self._line("ADDED", obj) for obj in self._first)
        self._first = []
        if wanted.announce_end_of_list:
            first += self._bookmark({"k8s.io/initial-events-end": "true"})
        yield first or None
        while (left := ends - time.monotonic()) > 0:
            try:
                change = self._waiting.get(timeout=min(left, _PAUSE_SECONDS))
            except queue.Empty:
                if wanted.bookmarks and time.monotonic() >= bookmark_at:
                    bookmark_at = time.monotonic() + _BOOKMARK_SECONDS
                    yield self._bookmark({})
                else:
                    yield None
                continue
            said: list[bytes] = []
            while change is not None:
                said.append(self._told(change))
                self._version = max(self._version, change.version)
                if self._waiting.empty():
                    break
                change = self._waiting.get()
            if joined := b"".join(said):
                yield joined
            if change is None:
                return
        if wanted.bookmarks:
            yield self._bookmark({})

    def _told(self, change: Change) -> bytes:
        """The line for a change; empty if this watch does not see it."""
        wanted = self._wanted
        if wanted.namespace is not None and change.object["metadata"].get("namespace", "") != wanted.namespace:
            return b""
        if self._selected is None:
            return self._line(change.type, change.object)
        before = change.previous is not None and self._selected(change.previous)
        after = change.type != "DELETED" and self._selected(change.object)
        if after:
            return self._line("MODIFIED" if before else "ADDED", change.object)
        if before:
            shown = change.object
            if change.type != "DELETED" and change.previous is not None:
                version = change.object["metadata"]["resourceVersion"]
                shown = {
                    **change.previous,
                    "metadata": {**change.previous["metadata"], "resourceVersion": version},
                }
            return self._line("DELETED", shown)
        return b""

    def _line(self, what: str, obj: Obj) -> bytes:
        kind = self._wanted.kind
        seen = obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}
        return msgspec.json.encode({"type": what, "object": self._wanted.show(seen)}) + b"\n"

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        kind = self._wanted.kind
        metadata: Obj = {"resourceVersion": str(self._version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"
