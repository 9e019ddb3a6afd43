"""``/healthz``: whether the relay's loop turns and its watchers live, for the kubelet's probes."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Health:
    """Serves ``/healthz`` on a port (0: any) until stopped: 200 while ``healthy`` says so, else 503."""

    def __init__(self, port: int, healthy: Callable[[], bool]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path == "/healthz"
                good = known and healthy()
                body = b"ok\n" if good else (b"unhealthy\n" if known else b"not found\n")
                self.send_response(200 if good else (503 if known else 404))
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
                """Say nothing: a probe each few seconds is no news."""

        # a probe comes from the node, so every address is listened on
        self._server = ThreadingHTTPServer(("0.0.0.0", port), Handler)  # noqa: S104
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
