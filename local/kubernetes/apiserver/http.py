"""HTTP/1.1 as far as an apiserver needs it: requests off a socket, answers and chunked streams onto it.

Python's own ``http.server`` parses headers as e-mail, which costs more than the rest of a small request together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
_LONGEST_LINE = 64 * 1024
_MOST_HEADERS = 100
_LARGEST_BODY = 3 * 1024 * 1024
_WHOLE = 64 * 1024


class BadHttpError(Exception):
    """What came is no HTTP that is understood here; ``status`` is the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Request:
    """One request, with what its path says about the object it is for (empty when it is for none)."""

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


@dataclass(frozen=True)
class Response:
    """An answer: a body, or a stream of chunks. ``drop`` closes the connection with no answer at all."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: Iterator[bytes | None] | None = field(default=None, compare=False)
    """Chunks as they come; None is a pause in which the server looks whether the client is still there."""
    drop: bool = False


def read_request(source: IO[bytes]) -> Request | None:
    """The next request of a connection; None when the client has closed it.

    Raises:
        BadHttpError: it can't be understood.
    """
    line = source.readline(_LONGEST_LINE)
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
    while (line := source.readline(_LONGEST_LINE)) not in {b"\r\n", b"\n", b""}:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or len(headers) >= _MOST_HEADERS:
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
        if int(length) > _LARGEST_BODY:
            raise BadHttpError(413, "request body is too large")
        body = source.read(int(length)) if length != "0" else b""
        if len(body) != int(length):
            raise BadHttpError(400, "the body ended early")
    return body


def _read_chunks(source: IO[bytes]) -> Iterator[bytes]:
    total = 0
    while True:
        size_line = source.readline(_LONGEST_LINE).split(b";")[0].strip()
        try:
            size = int(size_line, 16)
        except ValueError as error:
            raise BadHttpError(400, "malformed chunk") from error
        total += size
        if total > _LARGEST_BODY:
            raise BadHttpError(413, "request body is too large")
        chunk = source.read(size)
        source.readline(_LONGEST_LINE)
        if not size:
            return
        yield chunk


def head(response: Response, *, keep: bool) -> bytes:
    """The status line and headers of an answer."""
    length = "Transfer-Encoding: chunked" if response.stream is not None else f"Content-Length: {len(response.body)}"
    lines = [
        f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Unknown')}",
        f"Content-Type: {response.content_type}",
        "Cache-Control: no-cache, private",
        length,
        *(f"{name}: {value}" for name, value in response.headers),
        *(() if keep else ("Connection: close",)),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def whole(response: Response, *, keep: bool) -> Iterator[bytes]:
    """An answer with a body, in as few writes as it should be sent in."""
    start = head(response, keep=keep)
    if len(response.body) <= _WHOLE:
        yield start + response.body
    else:
        yield start
        yield response.body


def chunk(data: bytes) -> bytes:
    """One chunk of a stream; no data ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
