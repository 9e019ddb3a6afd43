"""An open watch of the Kubernetes API: events out of a streaming response."""

from __future__ import annotations

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
