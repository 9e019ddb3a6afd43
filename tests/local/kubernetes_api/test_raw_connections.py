"""What goes over the wire: streams, bookmarks, kept connections, and clients that misbehave."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.kubernetes import kinds
from local.kubernetes.apiserver.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.local.kubernetes_api.conftest import Cluster

_AUTHORIZED = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[http.client.HTTPSConnection]:
    context = ssl.create_default_context(cadata=cluster.server.ca_pem)
    opened = http.client.HTTPSConnection(cluster.server.url.removeprefix("https://"), context=context, timeout=30)
    yield opened
    opened.close()


def events(connection: http.client.HTTPSConnection, query: str) -> list[dict[str, Any]]:
    connection.request("GET", f"/api/v1/pods?watch=1&{query}", headers=_AUTHORIZED)
    return [json.loads(line) for line in connection.getresponse().read().splitlines()]


def test_one_connection_serves_many_requests_and_a_watch_among_them(
    cluster: Cluster, connection: http.client.HTTPSConnection
) -> None:
    cluster.pod("a")
    for _ in range(3):
        connection.request("GET", "/api/v1/namespaces/default/pods/a", headers=_AUTHORIZED)
        assert json.loads(connection.getresponse().read())["metadata"]["name"] == "a"
        assert [event["type"] for event in events(connection, "timeoutSeconds=1")] == ["ADDED"]


def test_a_streaming_list_ends_with_a_bookmark(cluster: Cluster, connection: http.client.HTTPSConnection) -> None:
    cluster.pod("a")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    first, marked, *_ = events(connection, query)
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert marked["type"] == "BOOKMARK"
    assert marked["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert marked["object"]["metadata"]["resourceVersion"] == str(cluster.store.version)


def test_a_watch_that_is_over_ends_with_a_bookmark_to_resume_from(
    cluster: Cluster, connection: http.client.HTTPSConnection
) -> None:
    version = cluster.store.version
    cluster.pod("a")
    received = events(connection, f"resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=1")
    assert [event["type"] for event in received] == ["ADDED", "BOOKMARK"]
    assert received[1]["object"]["metadata"]["resourceVersion"] == str(cluster.store.version)


def test_a_version_in_the_future_is_refused(cluster: Cluster, connection: http.client.HTTPSConnection) -> None:
    connection.request("GET", f"/api/v1/pods?resourceVersion={cluster.store.version + 99}", headers=_AUTHORIZED)
    answer = connection.getresponse()
    assert answer.status == 504
    assert "Too large resource version" in json.loads(answer.read())["message"]


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"POST /api/v1/nodes HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /api/v1/nodes HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"POST /api/v1/nodes HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_malformed_http_gets_an_error_and_closes_the_connection(cluster: Cluster, sent: bytes) -> None:
    host, port = cluster.server.url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cadata=cluster.server.ca_pem)
    with (
        socket.create_connection((host, int(port)), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        secure.sendall(sent)
        assert secure.recv(13).startswith(b"HTTP/1.1 4")
        while secure.recv(4096):
            pass


def test_a_client_without_tls_does_not_stop_the_server(
    cluster: Cluster, connection: http.client.HTTPSConnection
) -> None:
    host, port = cluster.server.url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):  # closed or reset, as the kernel likes
            while plain.recv(4096):
                pass
    connection.request("GET", "/readyz")
    assert connection.getresponse().read() == b"ok"


def test_a_secret_is_kept_encoded(cluster: Cluster, connection: http.client.HTTPSConnection) -> None:
    body = json.dumps({"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    connection.request("POST", "/api/v1/namespaces/default/secrets", body, _AUTHORIZED)
    assert connection.getresponse().status == 201
    secret = cluster.store.get(kinds.SECRETS, "s", namespace="default")
    assert (secret["type"], secret["data"]) == ("Opaque", {"a": "Yg=="})


def test_the_module_can_be_run_from_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    running = subprocess.Popen(
        [sys.executable, "-m", "local.kubernetes", "--kubeconfig", str(config)], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    with running, running.stderr:
        assert running.stderr.readline().startswith("Kubernetes API on https://127.0.0.1:")
        assert yaml.safe_load(config.read_text())["kind"] == "Config"
        running.terminate()
