"""A stub Kubernetes API server for a cluster of any size, which responds with precomputed bytes.

It runs in its own process with TLS, as a real one, so that only the client is measured in the client's process, and it
needs little processor time itself.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from functions.lifecycle.claims.adoption import adopted
from local.kubernetes.apiserver.certificates import make_identity
from shared.api import decode, nodeclass, nodepool
from shared.api import labels as names
from shared.api.nodeclaim import NodeClaim

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
ZONE = "us-east-1a"
_REPORT_MINUTES = 5
"""A kubelet reports its node's status this often, if it is as before."""
_POD_BYTES = 5_000
_IMAGES = 50
"""As many images a kubelet reports (``nodeStatusMaxImages``): most of a node's 12 KB."""
_VERSION = 1_000
_OTHER_KINDS = 10
"""Resource versions of other kinds' changes, so that a watch of pods never reaches a list's resource version."""
_STAMP = "2026-11-21T12:00:00Z"
_READY = {"type": "Ready", "status": "True", "lastTransitionTime": _STAMP}
_KUBELET_CONDITIONS = [
    {"type": kind, "status": "True", "lastTransitionTime": _STAMP}
    for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
]
_SIZE = {"cpu": "2", "memory": "8Gi", "pods": "58"}
_WATCH_SECONDS = 5
_CLASS = {"group": names.AWS_GROUP, "kind": "EC2NodeClass", "name": "default"}
_POOL = {
    "metadata": {"name": "default", "uid": "pool"},
    "spec": {"template": {"spec": {"nodeClassRef": _CLASS, "requirements": []}}},
}


def pod(i: int, *, nodes: int, version: int = 1) -> dict[str, Any]:
    """A pod of 5 KB on one of the nodes, as its kubelet reports it; with a negative number it is pending."""
    is_bound = i >= 0
    requests = {"cpu": "100m", "memory": "100Mi"} if is_bound else {"cpu": "1", "memory": "2Gi"}
    obj: dict[str, Any] = {
        "metadata": {
            "name": f"web-{i}",
            "namespace": "default",
            "uid": f"pod-{i}",
            "resourceVersion": str(version),
            "creationTimestamp": _STAMP,
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "web",
                    "image": "web",
                    "resources": {"requests": requests},
                }
            ],
            "volumes": [{"name": f"kube-api-access-{i}", "projected": {"sources": []}}],
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"key": names.NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {"phase": "Running" if is_bound else "Pending"},
    }
    if is_bound:
        obj["spec"]["nodeName"] = f"node-{i % nodes}"
        container = {"name": "web", "allocatedResources": requests, "resources": {"requests": requests}}
        obj["status"] |= {"conditions": _KUBELET_CONDITIONS, "startTime": _STAMP, "containerStatuses": [container]}
    else:
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        obj["status"]["conditions"] = [unplaced]
    filler = _POD_BYTES - len(json.dumps(obj))
    obj["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:status": "x" * max(filler - 70, 0)}}]
    return obj


def node(i: int) -> dict[str, Any]:
    """A full node of a NodePool."""
    own = {
        names.NODEPOOL: "default",
        names.INITIALIZED: "true",
        names.REGISTERED: "true",
        names.INSTANCE_TYPE: "m5.large",
        names.ZONE: ZONE,
        names.ARCH: "amd64",
        names.OS: "linux",
        names.CAPACITY_TYPE: "spot",
        names.HOSTNAME: f"node-{i}",
    }
    return {
        "metadata": {
            "name": f"node-{i}",
            "uid": f"node-{i}",
            "resourceVersion": "1",
            "labels": own,
            "finalizers": [names.TERMINATION_FINALIZER],
            "ownerReferences": [
                {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": f"claim-{i}", "uid": f"claim-{i}"}
            ],
        },
        "spec": {"providerID": f"aws:///{ZONE}/i-{i:017x}"},
        "status": {"capacity": _SIZE, "allocatable": _SIZE, "conditions": [_READY], "images": _images()},
    }


def _images() -> list[dict[str, Any]]:
    repository = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/service"
    return [
        {"names": [f"{repository}-{n}@sha256:{n:064x}", f"{repository}-{n}:v1.{n}"], "sizeBytes": 100_000_000 + n}
        for n in range(_IMAGES)
    ]


@functools.cache
def _hashes() -> dict[str, str]:
    """The annotations of a NodeClaim of the NodePool and node class as they are."""
    pool = decode.node_pool({"apiVersion": nodepool.API_VERSION, "kind": nodepool.KIND, **_POOL}).value
    own_class = decode.node_class(
        {"apiVersion": nodeclass.API_VERSION, "kind": nodeclass.KIND, **node_class("demo")}
    ).value
    return dict(adopted(NodeClaim(), pool, own_class).metadata.annotations)


def claim(i: int) -> dict[str, Any]:
    """The node's NodeClaim, with all that functions write to it."""
    done = [
        {"type": t, "status": "True", "reason": t, "lastTransitionTime": _STAMP}
        for t in ("Launched", "Registered", "Initialized", "Ready", "Consolidatable")
    ]
    return {
        "metadata": {
            "name": f"claim-{i}",
            "uid": f"claim-{i}",
            "labels": {names.NODEPOOL: "default"},
            "annotations": _hashes(),
            "finalizers": [names.TERMINATION_FINALIZER],
        },
        "spec": {"nodeClassRef": _CLASS, "requirements": []},
        "status": {
            "providerID": f"aws:///{ZONE}/i-{i:017x}",
            "nodeName": f"node-{i}",
            "capacity": _SIZE,
            "allocatable": _SIZE,
            "conditions": done,
        },
    }


def node_class(cluster: str) -> dict[str, Any]:
    """A node class that the local AWS can resolve."""
    discovery = [{"tags": {"karpenter.sh/discovery": cluster}}]
    return {
        "metadata": {"name": "default", "uid": "class"},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
        },
    }


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
            "nodepools": _written([_POOL]),
            "ec2nodeclasses": _written([node_class("demo")]),
        }
        self._lease: dict[str, Any] = {"metadata": {"name": "lease", "namespace": "kube-system"}, "spec": {}}

    def get(self, path: str, query: dict[str, str]) -> bytes:
        """A page of a list, or one object: the lease, a node, a NodeClaim."""
        if "/leases/" in path:
            return self._stored(self._lease)
        above, plural = path.rsplit("/", 2)[-2:]
        if above in _SINGLE:
            return self._stored(self._object(above, plural))
        node_name = query.get("fieldSelector", "").partition("spec.nodeName=")[2]
        if plural == "pods" and node_name.startswith(","):
            self._version += CHANGED + _OTHER_KINDS
            items = self._pending
        elif plural == "pods" and node_name:
            items = self._pods[int(node_name.partition("-")[2]) : self._pod_count : self._nodes]
        elif query.get("fieldSelector") == "metadata.name=-":  # the list that reads a kind's resourceVersion
            items = []
        else:
            items = self._pods if plural == "pods" else self._lists.get(plural, [])
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or len(items))
        metadata = {"resourceVersion": str(self._version), "continue": str(end) if end < len(items) else ""}
        return b'{"metadata":%b,"items":[%b]}' % (json.dumps(metadata).encode(), b",".join(items[start:end]))

    def delete(self, path: str) -> bytes:
        """The deleted object, which its finalizers keep for later reads."""
        above, name = path.rsplit("/", 2)[-2:]
        self._deleted.add(name)
        return self._stored(self._object(above, name) if above in _SINGLE else {"metadata": {"name": name}})

    def _object(self, plural: str, name: str) -> dict[str, Any]:
        obj = _SINGLE[plural](int(name.rpartition("-")[2]))
        if name in self._deleted:
            obj["metadata"]["deletionTimestamp"] = _STAMP
        return obj

    def write(self, path: str, body: dict[str, Any] | list[Any]) -> bytes:
        """The created or changed object. A JSON patch, which is a list, changes nothing here."""
        stored = self._lease if "/leases/" in path else {"metadata": {}}
        if isinstance(body, dict):
            _merge(stored, body)
        stored["metadata"].setdefault("uid", stored["metadata"].get("name", ""))
        return self._stored(stored)

    def events(self, plural: str, since: int) -> Iterator[bytes]:
        """The changes after that resource version: the first fifty pods, or as many nodes as report in a minute."""
        if plural == "pods":
            for version in range(since + 1, since + 1 + CHANGED):
                yield _event(pod(version % CHANGED, nodes=self._nodes, version=version))
            return
        reporting = max(1, self._nodes // _REPORT_MINUTES)
        for number in range(reporting):
            last = number == reporting - 1
            reported = node(number)
            reported["metadata"]["resourceVersion"] = str(self._version if last else since + 1)
            yield _event(reported)

    def _stored(self, obj: dict[str, Any]) -> bytes:
        obj["metadata"]["resourceVersion"] = str(self._version)
        return json.dumps(obj).encode()


def _event(changed: dict[str, Any]) -> bytes:
    return json.dumps({"type": "MODIFIED", "object": changed}).encode() + b"\n"


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

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if "watch" in query:
            self._watch(parts.path.rpartition("/")[2], int(query["resourceVersion"]))
        else:
            if "limit" in query:
                time.sleep(self.page_seconds)
            self._answer(200, self.stub.get(parts.path, query))

    def do_POST(self) -> None:
        self._write(201)

    def do_PATCH(self) -> None:
        self._write(200)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(200, self.stub.delete(urlsplit(self.path).path))

    def _write(self, status: int) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(status, self.stub.write(urlsplit(self.path).path, body))

    def _watch(self, plural: str, since: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client closes the connection when it is done
            for line in self.stub.events(plural, since):
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            time.sleep(_WATCH_SECONDS)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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
