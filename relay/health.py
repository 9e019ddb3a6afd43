"""``/healthz`` and ``/readyz`` for the kubelet's probes.

A relay that isn't healthy is restarted: its loop hangs, or a watcher ended. One that isn't ready can't publish hints. A
restart would not help it, so only the Deployment's status, and with it a rollout, says so.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class _DualStackServer(ThreadingHTTPServer):
    """Listens on every IPv6 address and, by the same socket, on every IPv4 address."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _server(port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    # Probes come from the node, to the pod's IPv6 address in an IPv6 cluster, so the server listens on every address.
    try:
        return _DualStackServer(("::", port), handler)
    except OSError:
        # The node's kernel has no IPv6. A port in use is an error of this server too.
        return ThreadingHTTPServer(("0.0.0.0", port), handler)  # noqa: S104 (every IPv4 address, for the same reason)


class HealthServer:
    """Serves ``/healthz`` and ``/readyz`` on a port (0: any) until stopped: 200 while their check is true, else 503."""

    def __init__(self, port: int, *, is_healthy: Callable[[], bool], is_ready: Callable[[], bool]) -> None:
        checks = {"/healthz": is_healthy, "/readyz": is_ready}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                check = checks.get(self.path)
                if check is None:
                    status, body = 404, b"not found\n"
                else:
                    status, body = (200, b"ok\n") if check() else (503, b"failing\n")
                self.send_response(status)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
                """Don't log: the kubelet probes every few seconds."""

        self._server = _server(port, Handler)
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
