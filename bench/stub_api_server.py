"""A stub Kubernetes API server for a cluster of any size, which responds with precomputed bytes.

It runs in its own process with TLS, as a real one, so that only the client is measured in the client's process, and it
needs little processor time itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from bench.stub_minutes import OTHER_KINDS, REPORT_MINUTES, Minutes, event
from bench.stub_objects import POOL, STAMP, claim, node, node_class, pod
from bench.stub_requests import Requests
from local.kubernetes.apiserver.certificates import make_identity

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator

PAGE_SECONDS = "TENON_STUB_PAGE_SECONDS"
"""The environment variable with the seconds that a page of a list takes, besides the transfer."""
PENDING_PODS = "TENON_STUB_PENDING_PODS"
"""The environment variable with the number of pending pods."""
CHANGED = 50
"""Pods that change between two lists of the pods without a node."""
PENDING = 100
"""How many pods are pending unless that variable says otherwise."""
REQUESTS, MINUTE = "/stub/requests", "/stub/minute"
"""Paths of the stub itself: a GET reads and resets what was counted, a POST lets a minute pass
(:meth:`StubResponses.pass_minute`)."""
_VERSION = 1_000
_WATCH_SECONDS = 5
_SINGLE = {"nodes": node, "nodeclaims": claim}


class StubResponses:
    """The responses: pages of lists, and events of watches."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._nodes = nodes
        self._pod_count = pods
        self._deleted: set[str] = set()
        self._version = _VERSION
        pending = [pod(i, nodes=nodes) for i in range(-int(os.environ.get(PENDING_PODS, PENDING)), 0)]
        self._pending = _written(pending)
        self._pods = [*_written(pod(i, nodes=nodes) for i in range(pods)), *self._pending]
        self._lists = {
            "nodes": _written(map(node, range(nodes))),
            "nodeclaims": _written(map(claim, range(nodes))),
            "nodepools": _written([POOL]),
            "ec2nodeclasses": _written([node_class("demo")]),
        }
        self._minutes: Minutes | None = None
        self._leases: dict[str, dict[str, Any]] = {}
        """By name: what a function holds isn't held for another, such as Karpenter."""

    @property
    def _current(self) -> int:
        """The resource version of lists."""
        return self._minutes.version if self._minutes else self._version

    def pass_minute(self, *, replaced: int, pending: int) -> bytes:
        """Let a minute pass, from now on instead of changes by request (bench/stub_minutes.py)."""
        self._minutes = self._minutes or Minutes(self._nodes, self._pod_count, self._version)
        self._minutes.pass_one(replaced=replaced, pending=pending)
        self._pending = self._minutes.pending
        self._pods[self._pod_count :] = self._pending
        return b"{}"

    def get(self, path: str, query: dict[str, str]) -> bytes:
        """A page of a list, or one object: the lease, a node, a NodeClaim."""
        if "/leases/" in path:
            return self._stored(self._lease(path))
        above, plural = path.rsplit("/", 2)[-2:]
        if above in _SINGLE:
            return self._stored(self._object(above, plural))
        node_name = query.get("fieldSelector", "").partition("spec.nodeName=")[2]
        if plural == "pods" and node_name.startswith(","):
            if not self._minutes:
                self._version += CHANGED + OTHER_KINDS
            items = self._pending
        elif plural == "pods" and node_name:
            items = self._pods[int(node_name.partition("-")[2]) : self._pod_count : self._nodes]
        elif query.get("fieldSelector") == "metadata.name=-":  # the list that reads a kind's resourceVersion
            items = []
        else:
            items = self._pods if plural == "pods" else self._lists.get(plural, [])
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or len(items))
        metadata = {"resourceVersion": str(self._current), "continue": str(end) if end < len(items) else ""}
        return b'{"metadata":%b,"items":[%b]}' % (json.dumps(metadata).encode(), b",".join(items[start:end]))

    def _lease(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        return self._leases.setdefault(name, {"metadata": {"name": name, "namespace": "kube-system"}, "spec": {}})

    def delete(self, path: str) -> bytes:
        """The deleted object, which its finalizers keep for later reads."""
        above, name = path.rsplit("/", 2)[-2:]
        self._deleted.add(name)
        return self._stored(self._object(above, name) if above in _SINGLE else {"metadata": {"name": name}})

    def _object(self, plural: str, name: str) -> dict[str, Any]:
        obj = _SINGLE[plural](int(name.rpartition("-")[2]))
        if name in self._deleted:
            obj["metadata"]["deletionTimestamp"] = STAMP
        return obj

    def write(self, path: str, body: dict[str, Any] | list[Any]) -> bytes:
        """The created or changed object. A JSON patch, which is a list, changes nothing here."""
        stored = self._lease(path) if "/leases/" in path else {"metadata": {}}
        if isinstance(body, dict):
            _merge(stored, body)
        stored["metadata"].setdefault("uid", stored["metadata"].get("name", ""))
        return self._stored(stored)

    def events(self, plural: str, since: int, *, timeout: int) -> Iterator[bytes]:
        """The changes after that resource version: the first fifty pods, or as many nodes as report in a minute."""
        if self._minutes:
            yield from self._minutes.events(plural, since, timeout=timeout)
            return
        if plural == "pods":
            for version in range(since + 1, since + 1 + CHANGED):
                yield event("MODIFIED", pod(version % CHANGED, nodes=self._nodes, version=version))
            return
        reporting = max(1, self._nodes // REPORT_MINUTES)
        for number in range(reporting):
            last = number == reporting - 1
            reported = node(number)
            reported["metadata"]["resourceVersion"] = str(self._version if last else since + 1)
            yield event("MODIFIED", reported)

    def _stored(self, obj: dict[str, Any]) -> bytes:
        obj["metadata"]["resourceVersion"] = str(self._current)
        return json.dumps(obj).encode()


def _merge(stored: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            stored.pop(key, None)
        elif isinstance(value, dict):
            _merge(stored.setdefault(key, {}), value)
        else:
            stored[key] = value


def _written(objects: Iterable[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(obj).encode() for obj in objects]


class _Handler(BaseHTTPRequestHandler):
    page_seconds = 0.0
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each response waits 40 ms for an acknowledgement
    stub: StubResponses
    requests = Requests()
    _name = ""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == REQUESTS:
            self._answer(200, json.dumps(self.requests.take()).encode())
            return
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self._name = self.requests.add("GET", parts.path, query)
        if "watch" in query:
            self._watch(parts.path.rpartition("/")[2], int(query["resourceVersion"]), int(query["timeoutSeconds"]))
        else:
            if "limit" in query:
                time.sleep(self.page_seconds)
            self._answer(200, self.stub.get(parts.path, query))

    def do_POST(self) -> None:
        if self.path == MINUTE:
            self._answer(201, self.stub.pass_minute(**self._body()))
        else:
            self._write(201)

    def do_PATCH(self) -> None:
        self._write(200)

    def do_DELETE(self) -> None:
        path = urlsplit(self.path).path
        self._name = self.requests.add("DELETE", path, {})
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(200, self.stub.delete(path))

    def _write(self, status: int) -> None:
        path = urlsplit(self.path).path
        self._name = self.requests.add(self.command, path, {})
        self._answer(status, self.stub.write(path, self._body()))

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _watch(self, plural: str, since: int, timeout: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client closes the connection when it is done
            for line in self.stub.events(plural, since, timeout=timeout):
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
                self.requests.sent(self._name, len(line))
            time.sleep(_WATCH_SECONDS)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self._name:
            self.requests.sent(self._name, len(body))
            self._name = ""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Nothing."""


class _Server(ThreadingHTTPServer):
    context: ssl.SSLContext
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close a watch's connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address


def serve(nodes: int, pods: int) -> None:
    """Serve a cluster of that size until killed; port and certificate authority are printed."""
    identity = make_identity()
    _Server.context = identity.context()
    _Handler.stub = StubResponses(nodes, pods)
    _Handler.page_seconds = float(os.environ.get(PAGE_SECONDS, "0"))
    with _Server(("127.0.0.1", 0), _Handler) as server:
        print(json.dumps({"port": server.server_port, "authority": identity.authority}), flush=True)
        server.serve_forever()


@contextlib.contextmanager
def stub_api_server(nodes: int, pods: int) -> Iterator[tuple[str, str]]:
    """The URL and the certificate authority (PEM) of a server in another process."""
    command = [sys.executable, "-m", "bench.stub_api_server", str(nodes), str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())
        try:
            yield f"https://127.0.0.1:{address['port']}", address["authority"]
        finally:
            process.kill()


if __name__ == "__main__":
    serve(*(int(n) for n in sys.argv[1:]))
