"""The embedded API on a socket: HTTPS with a certificate authority of its own, a thread a connection, watches streamed.

It is a context manager; inside, ``url``, ``ca_pem`` and ``kubeconfig`` are what clients need.
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
from local.kubernetes.apiserver.api import Api, Intercept, refusal
from local.kubernetes.apiserver.certificates import make_identity
from local.kubernetes.apiserver.http import BadHttpError, Request, Response, chunk, head, read_request, whole

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from local.kubernetes.apiserver.auth import Authenticate, Authorize
    from local.kubernetes.registry.store import Store

_BACKLOG = 128
_JOIN_SECONDS = 5.0
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
        """Where clients find it."""
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def intercept(self) -> Intercept | None:
        """Sees every request first, and may answer in the API's place: for faults and latency."""
        return self.api.intercept

    @intercept.setter
    def intercept(self, hook: Intercept | None) -> None:
        self.api.intercept = hook

    def kubeconfig(self, token: str = ADMIN_TOKEN) -> str:
        """A kubeconfig file's text for that token."""
        return auth.kubeconfig(self.url, self.ca_pem, token)

    def start(self) -> Self:
        """Begin to answer."""
        self._acceptor.start()
        return self

    def stop(self) -> None:
        """Close every connection and wait for the threads to end."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._acceptor.ident is not None:
            self._acceptor.join(_JOIN_SECONDS)
        self.api.stop_watches()
        with self._lock:
            open_now = dict(self._connections)
        for connection in open_now:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # SSLSocket's own would first drop its TLS state
        for thread in open_now.values():
            thread.join(_JOIN_SECONDS)

    def drop_watches(self) -> None:
        """End every running watch, as a restarted API server would; clients come back for what they missed."""
        self.api.stop_watches()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            secure = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            thread = threading.Thread(target=self._serve, args=(secure,), daemon=True)
            with self._lock:
                self._connections[secure] = thread
            thread.start()

    def _serve(self, secure: ssl.SSLSocket) -> None:
        """Answer one connection's requests, one after another."""
        # OSError: the client went away, or never spoke TLS; there is nobody to tell.
        with contextlib.suppress(OSError), secure:
            secure.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure.do_handshake()
            with secure.makefile("rb") as source:
                while not self._stopping.is_set() and self._exchange(secure, source):
                    pass
        with self._lock:
            self._connections.pop(secure, None)

    def _exchange(self, secure: ssl.SSLSocket, source: IO[bytes]) -> bool:
        """One request and its answer. False when the connection is done."""
        try:
            request = read_request(source)
        except BadHttpError as broken:
            refused = Response(broken.status, str(broken).encode(), content_type="text/plain")
            _send(secure, whole(refused, keep=False))
            return False
        if request is None:
            return False
        response = self._respond(request)
        if response.drop:
            return False
        keep = request.headers.get("connection", "").lower() != "close"
        if response.stream is not None:
            secure.sendall(head(response, keep=keep))
            return _stream(secure, response.stream) and keep
        _send(secure, whole(response, keep=keep))
        return keep

    def _respond(self, request: Request) -> Response:
        try:
            return self.api.respond(request)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError, msgspec.MsgspecError) as broken:
            # Built-in kinds have no schema here: an object of a wrong shape shows by one of these.
            return refusal(errors.bad_request(f"the object could not be decoded: {type(broken).__name__}: {broken}"))


def _send(secure: ssl.SSLSocket, parts: Iterator[bytes]) -> None:
    for part in parts:
        secure.sendall(part)


def _stream(secure: ssl.SSLSocket, lines: Iterator[bytes | None]) -> bool:
    """Send chunks until they or the client end. Whether the connection can go on."""
    try:
        for line in lines:
            if line:
                secure.sendall(chunk(line))
            elif _has_spoken(secure):
                return False
        secure.sendall(chunk(b""))
        return True
    finally:
        close = getattr(lines, "close", None)
        if close is not None:
            close()


def _has_spoken(secure: ssl.SSLSocket) -> bool:
    """Whether a client sent anything during a stream, which it only does to close it."""
    poll = select.poll()
    poll.register(secure, select.POLLIN)
    return bool(poll.poll(0)) or secure.pending() > 0
