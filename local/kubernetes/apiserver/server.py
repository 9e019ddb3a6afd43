"""The Kubernetes API over HTTPS, with a certificate authority of its own and one thread per connection.

The server is a context manager; inside, clients need its ``url``, ``ca_pem`` and ``kubeconfig``.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import IO, TYPE_CHECKING, Self

import msgspec

from local.kubernetes import errors
from local.kubernetes.apiserver import auth
from local.kubernetes.apiserver.api import Api, Intercept, error_response
from local.kubernetes.apiserver.certificates import make_identity
from local.kubernetes.apiserver.http import (
    BadHttpError,
    Request,
    Response,
    encode_chunk,
    encode_head,
    encode_response,
    read_request,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from local.kubernetes.apiserver.auth import Authenticate, Authorize
    from local.kubernetes.registry.store import Store

_BACKLOG = 128
_THREAD_JOIN_SECONDS = 5.0
ADMIN_TOKEN = "tenon-local-admin"  # noqa: S105 (opens a simulated cluster on this machine's loopback, nothing else)


class Server:
    """Serves a store on 127.0.0.1 until it is stopped."""

    def __init__(
        self,
        store: Store,
        *,
        port: int = 0,
        authenticate: Authenticate | None = None,
        authorize: Authorize | None = None,
        intercept: Intercept | None = None,
    ) -> None:
        """Without ``authenticate``, :data:`ADMIN_TOKEN` is the only token; port 0 picks a free one."""
        self.store = store
        self.api = Api(
            store,
            authenticate=authenticate or auth.single_token(ADMIN_TOKEN),
            authorize=authorize,
            intercept=intercept,
        )
        identity = make_identity()
        self.ca_pem = identity.authority
        self._context = identity.context()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        self._lock = threading.Lock()
        self._connections: dict[ssl.SSLSocket, threading.Thread] = {}
        self._stopping = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="kubernetes-api", daemon=True)

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def intercept(self) -> Intercept | None:
        """Sees every request first and may answer in place of the API: for faults and latency."""
        return self.api.intercept

    @intercept.setter
    def intercept(self, hook: Intercept | None) -> None:
        self.api.intercept = hook

    def kubeconfig(self, token: str = ADMIN_TOKEN) -> str:
        """The text of a kubeconfig file with that token."""
        return auth.kubeconfig(self.url, self.ca_pem, token)

    def start(self) -> Self:
        """Start to accept connections."""
        self._acceptor.start()
        return self

    def stop(self) -> None:
        """Close every connection and wait for the threads to end."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._acceptor.ident is not None:
            self._acceptor.join(_THREAD_JOIN_SECONDS)
        self.api.stop_watches()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                # SSLSocket.shutdown would drop the TLS state first.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in connections.values():
            thread.join(_THREAD_JOIN_SECONDS)

    def drop_watches(self) -> None:
        """End every running watch, as a restart of the API server does; clients reconnect and catch up."""
        self.api.stop_watches()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            connection = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: ssl.SSLSocket) -> None:
        """Answer the requests of one connection, one after another."""
        # OSError: the client closed the connection or does not speak TLS; nobody can be told.
        with contextlib.suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.do_handshake()
            with connection.makefile("rb") as source:
                while not self._stopping.is_set() and self._exchange(connection, source):
                    pass
        with self._lock:
            self._connections.pop(connection, None)

    def _exchange(self, connection: ssl.SSLSocket, source: IO[bytes]) -> bool:
        """Answer one request. False when the connection is finished."""
        try:
            request = read_request(source)
        except BadHttpError as error:
            response = Response(error.status, str(error).encode(), content_type="text/plain")
            _send(connection, encode_response(response, keep_alive=False, now=self.store.now()))
            return False
        if request is None:
            return False
        response = self._respond(request)
        if response.drop:
            return False
        keep_alive = request.headers.get("connection", "").lower() != "close"
        if response.stream is not None:
            connection.sendall(encode_head(response, keep_alive=keep_alive, now=self.store.now()))
            return _stream(connection, response.stream) and keep_alive
        _send(connection, encode_response(response, keep_alive=keep_alive, now=self.store.now()))
        return keep_alive

    def _respond(self, request: Request) -> Response:
        try:
            return self.api.respond(request)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, msgspec.MsgspecError) as error:
            # Built-in kinds have no schema: a malformed object of one raises one of these.
            text = f"the object could not be decoded: {type(error).__name__}: {error}"
            return error_response(errors.bad_request(text))


def _send(connection: ssl.SSLSocket, parts: Iterator[bytes]) -> None:
    for part in parts:
        connection.sendall(part)


def _stream(connection: ssl.SSLSocket, lines: Iterator[bytes | None]) -> bool:
    """Send chunks until the stream or the client ends. Whether the connection can be used again."""
    try:
        for line in lines:
            if line:
                connection.sendall(encode_chunk(line))
            elif _has_input(connection):
                return False
        connection.sendall(encode_chunk(b""))
        return True
    finally:
        close = getattr(lines, "close", None)
        if close is not None:
            close()


def _has_input(connection: ssl.SSLSocket) -> bool:
    """Whether the client sent anything during a stream; it does so only to close the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0)) or connection.pending() > 0
