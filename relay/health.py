"""``/healthz`` for the kubelet's probes: whether the relay's loop runs and its watchers are alive."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class HealthServer:
    """Serves ``/healthz`` on a port (0: any) until stopped: 200 while ``is_healthy`` returns true, else 503."""

    def __init__(self, port: int, is_healthy: Callable[[], bool]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path_exists = self.path == "/healthz"
                healthy = path_exists and is_healthy()
                body = b"ok\n" if healthy else (b"unhealthy\n" if path_exists else b"not found\n")
                self.send_response(200 if healthy else (503 if path_exists else 404))
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
                """Don't log: the kubelet probes every few seconds."""

        # Probes come from the node, so the server listens on every address.
        self._server = ThreadingHTTPServer(("0.0.0.0", port), Handler)  # noqa: S104
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
