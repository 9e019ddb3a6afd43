"""An open watch of the Kubernetes API: events out of a streaming response."""

from __future__ import annotations

import contextvars
import queue
import threading
from typing import TYPE_CHECKING

import msgspec
import urllib3

from shared.base.struct import WireStruct
from shared.cluster import errors

if TYPE_CHECKING:
    from collections.abc import Iterator


class WatchEvent(WireStruct):
    """One change: ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK; ``object`` is the raw JSON."""

    type: str
    object: msgspec.Raw


_decoder = msgspec.json.Decoder(WatchEvent)


class Watch:
    """An open watch: iterate over its events; :meth:`close` ends it from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[WatchEvent]:
        """Events until the server's time-out or :meth:`close`.

        Raises:
            ExpiredError: the resourceVersion is too old (HTTP 410): list again.
            UnavailableError: the connection broke: watch again from the last resourceVersion.
            ApiError: any other ERROR event.
        """
        rest = b""
        try:
            for chunk in self._response.stream(None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield _decode_event(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # urllib3 raises ValueError when close() shuts the response during a read.
            if not self._closed:
                raise errors.UnavailableError(0, type(error).__name__, f"the watch broke: {error}") from error
        finally:
            self._response.close()

    def close(self) -> None:
        """End the watch; an iteration that waits in another thread returns."""
        self._closed = True
        try:
            self._response.shutdown()
        except (ValueError, OSError, RuntimeError):
            # The response has ended already.
            self._response.close()


def _decode_event(line: bytes) -> WatchEvent:
    try:
        event = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.UnavailableError(0, "Garbled", f"the watch sent an invalid event: {error}") from error
    if event.type == "ERROR":
        raise errors.from_watch_event(bytes(event.object))
    return event


class WatchLagsError(Exception):
    """The watch doesn't reach the state of a list, or is ahead of it: list again."""


class WatchStream:
    """A watch that is read in a thread of that name, so that its silence can be detected."""

    def __init__(self, watch: Watch, *, name: str) -> None:
        self._watch = watch
        self._events: queue.SimpleQueue[WatchEvent | errors.ApiError | None] = queue.SimpleQueue()
        # The thread runs in the invocation's context: the token is made with its runtime and clock.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._read,), name=name, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for event in self._watch:
                self._events.put(event)
        except errors.ApiError as error:
            self._events.put(error)
        else:
            self._events.put(None)

    def next(self, seconds: float) -> WatchEvent | None:
        """The next event, or None if there was none for that time.

        Raises:
            ApiError: the watch ended with it.
            WatchLagsError: the watch ended.
        """
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return None
        if event is None:
            raise WatchLagsError
        if isinstance(event, errors.ApiError):
            raise event
        return event

    def close(self) -> None:
        """End the watch and the thread."""
        self._watch.close()
        self._thread.join()


def is_at_least(version: str, other_version: str) -> bool:
    """Whether a resourceVersion is the same or later. They are growing numbers (API conventions, v1.35)."""
    return version.isdigit() and other_version.isdigit() and int(version) >= int(other_version)
