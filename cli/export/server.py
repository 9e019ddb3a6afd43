"""The HTTP server: ``/metrics`` for Prometheus, ``/healthz`` for probes. Requests only read what is kept in memory.

A source that can't be read leaves the process healthy; a read that never ends doesn't, as a restart helps then.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cli.export.exposition import Exposition

METRICS_PATH, HEALTH_PATH = "/metrics", "/healthz"
_IDLE_SECONDS = 10
_PLAIN = ("Content-Type", "text/plain; charset=utf-8")


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without the reverse look-up of the address that HTTPServer makes: DNS may be gone too."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS  # a client that sends nothing doesn't keep its thread

    def log_message(self, *_: object) -> None:
        """A scrape isn't news."""


@contextlib.contextmanager
def serve(
    exposition: Exposition, *, address: str, port: int, stuck: Callable[[], Iterable[str]] = tuple
) -> Iterator[str]:
    """Serve inside; yields the URL of the metrics. Port 0 takes a free one. ``stuck`` are reads that never end.

    Raises:
        OSError: the address can't be bound.
    """
    server = (_IPv6Server if ":" in address else _Server)((address, port), _Handler)
    server.set_app(_application(exposition, stuck))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    host = f"[{address}]" if ":" in address else address
    try:
        yield f"http://{host}:{server.server_port}{METRICS_PATH}"
    finally:
        server.shutdown()
        server.server_close()


def _application(exposition: Exposition, stuck: Callable[[], Iterable[str]]) -> Callable[..., Iterable[bytes]]:
    # generate_latest only collects; a registry would collect once more to check for duplicate names
    metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(exposition)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == METRICS_PATH:
            return metrics(environ, start_response)
        if path == HEALTH_PATH:
            sources = ", ".join(stuck())
            start_response("503 Service Unavailable" if sources else "200 OK", [_PLAIN])
            return [f"reads that never end: {sources}\n".encode() if sources else b"ok\n"]
        start_response("404 Not Found", [_PLAIN])
        return [f"nothing here; metrics are at {METRICS_PATH}\n".encode()]

    return application
