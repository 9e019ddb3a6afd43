"""Watches: the events that a client gets, from a version or from an initial list on, until its timeout.

An object that begins to match a selector is ADDED to that watch, one that ceases to match is DELETED, as on a real
server.
"""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import selectors
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Change, Obj
    from local.kubernetes.registry.store import Store

_POLL_SECONDS = 0.5
_BOOKMARK_SECONDS = 30.0
_BEFORE_TIMEOUT = 2.0
"""A bookmark comes that many seconds before the time-out, too."""
DEFAULT_TIMEOUT_SECONDS = 2400.0
"""How long a watch lives if its client sets no timeout; a real server picks 30 to 60 minutes."""


class WatchOptions(Struct, kw_only=True):
    """The watch that a client requests."""

    kind: Kind
    namespace: str | None
    labels: str
    fields: str
    since: int | None
    """Changes after this version; None begins with every present object."""
    timeout_seconds: float
    bookmarks: bool
    initial_events_end: bool
    """Whether a bookmark marks the end of the initial objects."""
    represent: Callable[[Obj], Any]
    """The object in the representation that the client accepts."""


class Watch:
    """One running watch: subscribed at once, then iterated for its lines."""

    def __init__(self, store: Store, options: WatchOptions) -> None:
        """Subscribe.

        Raises:
            ApiError: 400 a selector is malformed; 410 the version is too old.
        """
        self._store = store
        self._options = options
        self._changes: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        definition = store.definition(options.kind)
        selectable = definition.selectable if definition else ()
        self._selects = selectors.predicate(options.kind, options.labels, options.fields, selectable)
        resource = options.kind.resource

        def enqueue(change: Change) -> None:
            if change.kind.resource == resource:
                self._changes.put(change)

        with store.lock:
            if options.since is None:
                self._initial = store.list(
                    options.kind, namespace=options.namespace, labels=options.labels, fields=options.fields
                )
            else:
                self._initial = []
                for change in store.changes_since(options.kind, options.since):
                    self._changes.put(change)
            behind = options.since is not None and not self._changes.empty()
            self._version = options.since if behind and options.since is not None else store.version
            self._unsubscribe = store.subscribe(enqueue)

    def stop(self) -> None:
        """End the stream, from any thread."""
        self._changes.put(None)

    def lines(self) -> Iterator[bytes | None]:
        """The events as JSON lines, several at a time when several wait; None for a pause."""
        deadline = time.monotonic() + self._options.timeout_seconds
        try:
            yield self._initial_lines() or None
            yield from self._change_lines(deadline)
        finally:
            self._unsubscribe()

    def _initial_lines(self) -> bytes:
        lines = b"".join(self._line("ADDED", obj) for obj in self._initial)
        self._initial = []
        if self._options.initial_events_end:
            lines += self._bookmark({"k8s.io/initial-events-end": "true"})
        return lines

    def _change_lines(self, deadline: float) -> Iterator[bytes | None]:
        next_bookmark = time.monotonic() + _BOOKMARK_SECONDS
        if deadline - _BEFORE_TIMEOUT > time.monotonic():
            next_bookmark = min(next_bookmark, deadline - _BEFORE_TIMEOUT)
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                change = self._changes.get(timeout=min(remaining, _POLL_SECONDS))
            except queue.Empty:
                if self._options.bookmarks and time.monotonic() >= next_bookmark:
                    next_bookmark = time.monotonic() + _BOOKMARK_SECONDS
                    yield self._bookmark({})
                else:
                    yield None
                continue
            lines, stopped = self._drain(change)
            if lines:
                yield lines
            if stopped:
                return
        if self._options.bookmarks:
            yield self._bookmark({})

    def _drain(self, change: Change | None) -> tuple[bytes, bool]:
        """The lines of this change and of all that wait behind it, and whether the watch was stopped."""
        lines: list[bytes] = []
        while change is not None:
            lines.append(self._change_line(change))
            self._version = max(self._version, change.version)
            if self._changes.empty():
                break
            change = self._changes.get()
        return b"".join(lines), change is None

    def _change_line(self, change: Change) -> bytes:
        """The line for a change; empty if this watch does not see it."""
        namespace = self._options.namespace
        if namespace is not None and change.object["metadata"].get("namespace", "") != namespace:
            return b""
        if self._selects is None:
            return self._line(change.type, change.object)
        before = change.previous is not None and self._selects(change.previous)
        after = change.type != "DELETED" and self._selects(change.object)
        if after:
            return self._line("MODIFIED" if before else "ADDED", change.object)
        return self._line("DELETED", _last_selected(change)) if before else b""

    def _line(self, event_type: str, obj: Obj) -> bytes:
        api_version = self._options.kind.api_version
        versioned = obj if obj["apiVersion"] == api_version else {**obj, "apiVersion": api_version}
        return msgspec.json.encode({"type": event_type, "object": self._options.represent(versioned)}) + b"\n"

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        kind = self._options.kind
        metadata: Obj = {"resourceVersion": str(self._version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"


def _last_selected(change: Change) -> Obj:
    """The last state that the selector matched, with the version of the change after which it no longer does."""
    if change.type == "DELETED" or change.previous is None:
        return change.object
    version = change.object["metadata"]["resourceVersion"]
    return {**change.previous, "metadata": {**change.previous["metadata"], "resourceVersion": version}}
