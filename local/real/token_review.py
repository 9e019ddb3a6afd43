"""The TokenReview webhook by which a real API server authenticates functions, as EKS does with its access entries."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from local.kubernetes.apiserver.certificates import make_identity

if TYPE_CHECKING:
    from local.kubernetes.apiserver.auth import Authenticate, User


class TokenReviewWebhook:
    """A context manager; inside, it answers at ``url``, trusted by ``certificate_authority`` (PEM)."""

    def __init__(self, authenticate: Authenticate) -> None:
        identity = make_identity()
        self.certificate_authority = identity.authority
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(authenticate))
        self._server.socket = identity.context().wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="token review", daemon=True)

    @property
    def url(self) -> str:
        """The webhook's address."""
        return f"https://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def review(token: str, authenticate: Authenticate) -> dict[str, Any]:
    """The answer to a TokenReview (authentication.k8s.io/v1)."""
    user: User | None = authenticate(token)
    status: dict[str, Any] = {"authenticated": user is not None}
    if user is not None:
        # The API server adds system:authenticated.
        groups = [group for group in user.groups if group != "system:authenticated"]
        status["user"] = {"username": user.name, "uid": user.name, "groups": groups}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}


def _handler(authenticate: Authenticate) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(review(request["spec"]["token"], authenticate)).encode()
            with contextlib.suppress(OSError):  # the API server has gone
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    return Handler
