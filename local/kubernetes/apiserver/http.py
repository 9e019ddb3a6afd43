"""The part of HTTP/1.1 that an API server needs: requests, responses and chunked streams.

Python's ``http.server`` parses headers as e-mail, which costs more than the rest of a small request.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import format_datetime
from typing import IO, TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

_REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    409: "Conflict",
    410: "Gone",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
_MAX_LINE_BYTES = 64 * 1024
_MAX_HEADERS = 100
_MAX_BODY_BYTES = 3 * 1024 * 1024
_SINGLE_WRITE_BYTES = 64 * 1024


class BadHttpError(Exception):
    """A request that is not valid HTTP; ``status`` is the response's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request(Struct):
    """One request, and the object that its path is for (empty when it is for none)."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    verb: str = ""
    """get, list, watch, create, update, patch, delete or deletecollection."""
    resource: str = ""
    """``plural.group`` or, in the core group, the plural."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Response(Struct):
    """A body, or a stream of chunks. ``drop`` closes the connection without a response."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: Iterator[bytes | None] | None = None
    """Chunks as they come; at a None, the server checks whether the client is still connected."""
    drop: bool = False


def read_request(source: IO[bytes]) -> Request | None:
    """The next request of a connection; None when the client has closed it.

    Raises:
        BadHttpError: it is malformed or too large.
    """
    line = source.readline(_MAX_LINE_BYTES)
    if not line:
        return None
    try:
        method, target, _ = line.decode("latin-1").split()
    except ValueError as error:
        raise BadHttpError(400, "malformed request line") from error
    headers = _read_headers(source)
    body = _read_body(source, headers)
    parts = urlsplit(target if not target.startswith("//") else target[1:])
    query = dict(parse_qsl(parts.query, keep_blank_values=True)) if parts.query else {}
    return Request(method, unquote(parts.path), query, headers, body)


def _read_headers(source: IO[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    while (line := source.readline(_MAX_LINE_BYTES)) not in {b"\r\n", b"\n", b""}:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or len(headers) >= _MAX_HEADERS:
            raise BadHttpError(400, "malformed headers")
        headers[name.strip().lower()] = value.strip()
    return headers


def _read_body(source: IO[bytes], headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b"".join(_read_chunks(source))
    else:
        length = headers.get("content-length", "0")
        if not length.isdigit():
            raise BadHttpError(400, "malformed content-length")
        if int(length) > _MAX_BODY_BYTES:
            raise BadHttpError(413, "request body is too large")
        body = source.read(int(length)) if length != "0" else b""
        if len(body) != int(length):
            raise BadHttpError(400, "the body ended early")
    return body


def _read_chunks(source: IO[bytes]) -> Iterator[bytes]:
    total = 0
    while True:
        size_line = source.readline(_MAX_LINE_BYTES).split(b";")[0].strip()
        try:
            size = int(size_line, 16)
        except ValueError as error:
            raise BadHttpError(400, "malformed chunk") from error
        total += size
        if total > _MAX_BODY_BYTES:
            raise BadHttpError(413, "request body is too large")
        chunk = source.read(size)
        source.readline(_MAX_LINE_BYTES)
        if not size:
            return
        yield chunk


def encode_head(response: Response, *, keep_alive: bool, now: datetime) -> bytes:
    """The status line and headers of a response, with the server's time as Go's have."""
    length = "Transfer-Encoding: chunked" if response.stream is not None else f"Content-Length: {len(response.body)}"
    lines = [
        f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unknown')}",
        f"Content-Type: {response.content_type}",
        "Cache-Control: no-cache, private",
        f"Date: {format_datetime(now.astimezone(UTC), usegmt=True)}",
        length,
        *(f"{name}: {value}" for name, value in response.headers),
        *(() if keep_alive else ("Connection: close",)),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encode_response(response: Response, *, keep_alive: bool, now: datetime) -> Iterator[bytes]:
    """A response with a body, as the parts in which to send it: small ones are sent at once."""
    head = encode_head(response, keep_alive=keep_alive, now=now)
    if len(response.body) <= _SINGLE_WRITE_BYTES:
        yield head + response.body
    else:
        yield head
        yield response.body


def encode_chunk(data: bytes) -> bytes:
    """One chunk of a stream; no data ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
