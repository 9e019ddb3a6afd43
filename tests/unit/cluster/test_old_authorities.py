"""Clusters that were created on Kubernetes 1.16 or before have an authority without the extensions of RFC 5280.

Python 3.13, on which functions run, refuses such an authority by default (VERIFY_X509_STRICT). Where the tests run on
an older Python, that default is set as 3.13 sets it.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import urllib3.connection
from kubernetes.client.configuration import Configuration
from urllib3.util import ssl_

from infra.cluster.kubernetes.custom_resource import ApiServer
from local.kubernetes.apiserver.certificates import Identity, make_identity
from shared.cluster.client import Client
from shared.cluster.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def old() -> Identity:
    return make_identity(key_identifiers=False)


@pytest.fixture
def server(old: Identity) -> Iterator[str]:
    """The URL of a server whose certificate such an authority has signed."""
    with HTTPServer(("127.0.0.1", 0), _Answer) as listening:
        listening.socket = old.context().wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts are made with the flags that Python 3.13 and urllib3 on it set."""

    def strict(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
        def make_strict(*arguments: Any, **options: Any) -> ssl.SSLContext:
            context = make(*arguments, **options)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            return context

        return make_strict

    monkeypatch.setattr(ssl, "create_default_context", strict(ssl.create_default_context))
    for module in (ssl_, urllib3.connection):
        monkeypatch.setattr(module, "create_urllib3_context", strict(ssl_.create_urllib3_context))


def test_python_3_13_refuses_such_an_authority(server: str, old: Identity) -> None:
    context = ssl.create_default_context(cadata=old.authority)
    with pytest.raises(ssl.SSLCertVerificationError, match="Missing"):
        _connect(server, context)


def test_functions_and_the_command_line_reach_the_cluster(server: str, old: Identity, tmp_path: Path) -> None:
    client = Client(_configuration(server, old.authority, tmp_path), attempts=1)
    assert json.loads(client.get("/version")) == {"path": "/version"}


def test_the_deployment_reaches_the_cluster(server: str, old: Identity) -> None:
    assert ApiServer(server, old.authority, "token").request("GET", "/version") == {"path": "/version"}


def test_another_authority_is_refused_all_the_same(server: str, tmp_path: Path) -> None:
    foreign = make_identity(key_identifiers=False).authority
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        Client(_configuration(server, foreign, tmp_path), attempts=1).get("/version")
    with pytest.raises(OSError, match="certificate verify failed"):
        ApiServer(server, foreign, "token").request("GET", "/version")


def test_another_host_is_refused_all_the_same(server: str, old: Identity, tmp_path: Path) -> None:
    configuration = _configuration(server, old.authority, tmp_path)
    configuration.tls_server_name = "example.com"
    with pytest.raises(UnavailableError, match=r"doesn't match|Hostname mismatch"):
        Client(configuration, attempts=1).get("/version")


def _configuration(server: str, authority: str, folder: Path) -> Configuration:
    path = folder / "authority.pem"
    path.write_text(authority)
    configuration = Configuration()
    configuration.host = server
    configuration.ssl_ca_cert = str(path)
    return configuration


def _connect(server: str, context: ssl.SSLContext) -> None:
    host, port = server.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass
