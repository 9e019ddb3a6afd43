"""What a snapshot costs: time and memory of listing, of catching up, and of a warm decision up to CreateFleet.

The API server is a canned one in a process of its own, so that what is measured is ours alone: processor time of the
reading process for lists, wall time for catching up (silence included), peak resident memory over that of a process
that has imported everything.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from kubernetes.client.configuration import Configuration

from local.world import shelf
from shared.api import labels as names
from shared.cluster.client import Client
from shared.cluster.reading import Reader
from shared.instances import build
from shared.scheduling.decision import Problem
from shared.scheduling.schedule import schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, str]
PAGE = 500
CHANGED = 50
PENDING = 100
POD_BYTES = 5_000
VERSION = 1_000
ZONE = "us-east-1a"
_STAMP = "2026-11-21T12:00:00Z"
_READY = {"type": "Ready", "status": "True", "lastTransitionTime": _STAMP}
_MIB = 1 << 20


def pod(i: int, *, nodes: int, version: int = 1) -> dict[str, Any]:
    """A pod of 5 KB; the last hundred of a cluster have no place."""
    placed = i >= 0
    made: dict[str, Any] = {
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
                {"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m" if placed else "1"}}}
            ],
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"key": names.NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {"phase": "Running" if placed else "Pending", "conditions": [_READY]},
    }
    if placed:
        made["spec"]["nodeName"] = f"node-{i % nodes}"
    else:
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        made["status"]["conditions"] = [unplaced]
    filler = POD_BYTES - len(json.dumps(made))
    made["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:status": "x" * max(filler - 70, 0)}}]
    return made


def node(i: int) -> dict[str, Any]:
    """A node that its pods fill, of a pool."""
    size = {"cpu": "2", "memory": "8Gi", "pods": "58"}
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
        "metadata": {"name": f"node-{i}", "uid": f"node-{i}", "resourceVersion": "1", "labels": own},
        "spec": {"providerID": f"aws:///{ZONE}/i-{i:017x}"},
        "status": {"capacity": size, "allocatable": size, "conditions": [_READY]},
    }


def claim(i: int) -> dict[str, Any]:
    """The node's claim."""
    done = [{"type": t, "status": "True", "lastTransitionTime": _STAMP} for t in ("Launched", "Registered")]
    return {
        "metadata": {"name": f"claim-{i}", "uid": f"claim-{i}", "labels": {names.NODEPOOL: "default"}},
        "spec": {"nodeClassRef": _CLASS, "requirements": []},
        "status": {"providerID": f"aws:///{ZONE}/i-{i:017x}", "nodeName": f"node-{i}", "conditions": done},
    }


_CLASS = {"group": names.AWS_GROUP, "kind": "EC2NodeClass", "name": "default"}
_POOL = {
    "metadata": {"name": "default", "uid": "pool"},
    "spec": {"template": {"spec": {"nodeClassRef": _CLASS, "requirements": []}}},
}
_NODE_CLASS = {
    "metadata": {"name": "default", "uid": "class"},
    "spec": {
        "amiFamily": "AL2023",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": "nodes",
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    },
}


class Canned(BaseHTTPRequestHandler):
    """Lists of so many objects, in pages; a watch that tells of fifty changes and then nothing."""

    protocol_version = "HTTP/1.1"
    nodes = 0
    pods = 0

    def do_GET(self) -> None:
        """Answer a list or a watch."""
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        plural = parts.path.rsplit("/", 1)[-1]
        if "watch" in query:
            self._watch()
            return
        items, more = self._items(plural, query)
        metadata = {"resourceVersion": str(VERSION + CHANGED), "continue": more}
        self._answer(json.dumps({"metadata": metadata, "items": items}).encode())

    def _items(self, plural: str, query: dict[str, str]) -> tuple[list[Any], str]:
        if plural == "pods":
            waiting = [pod(i, nodes=self.nodes) for i in range(-PENDING, 0)]
            if query.get("fieldSelector", "").startswith("spec.nodeName=,"):
                return waiting, ""
            first = int(query.get("continue") or 0)
            last = min(first + PAGE, self.pods)
            some = [pod(i, nodes=self.nodes) for i in range(first, last)]
            return (some, str(last)) if last < self.pods else (some + waiting, "")
        every = {"nodes": node, "nodeclaims": claim}
        if plural in every:
            return [every[plural](i) for i in range(self.nodes)], ""
        return {"nodepools": [_POOL], "ec2nodeclasses": [_NODE_CLASS]}.get(plural, []), ""

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client hangs up once it knows enough
            for i in range(CHANGED):
                event = {"type": "MODIFIED", "object": pod(i, nodes=self.nodes, version=VERSION + CHANGED + 1 + i)}
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            time.sleep(5)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Nothing."""


def serve(nodes: int, pods: int) -> None:
    """Serve a cluster of that size until killed; the port is said on standard output."""
    Canned.nodes, Canned.pods = nodes, pods
    with ThreadingHTTPServer(("127.0.0.1", 0), Canned) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


@contextlib.contextmanager
def canned(nodes: int, pods: int) -> Iterator[Client]:
    """A client of a canned server in another process."""
    command = [sys.executable, "-m", "bench.cluster_state", "serve", str(nodes), str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        client = Client(Configuration(host=f"http://127.0.0.1:{process.stdout.readline().strip()}"))
        try:
            yield client
        finally:
            client.close()
            process.kill()


def measure(nodes: int, pods: int) -> dict[str, float]:
    """Figures of one size: processor seconds and MiB of a first snapshot, wall and processor seconds of a warm one."""
    figures: dict[str, float] = {}
    with canned(nodes, pods) as client:
        client.get("/api/v1/namespaces")  # connected, and everything imported
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        reader = Reader(client)
        started = time.process_time()
        reader.read(datetime.now(UTC))
        figures["list_seconds"] = time.process_time() - started
        figures["mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / _MIB
        wall = time.perf_counter()
        reader.pods.read()
        figures["catch_up_seconds"] = time.perf_counter() - wall
        figures["lists"] = reader.pods.lists
        if nodes <= 1000:
            figures["decide_seconds"] = _decide(reader)
    return figures


def _decide(reader: Reader) -> float:
    """Processor seconds of a warm decision for the pods that wait: snapshot, instance types, schedule."""
    raw = shelf.taken(region="us-east-1", seed=0, now=datetime.now(UTC))
    seconds = []
    for _ in range(2):  # the first warms what a warm function has
        started = time.process_time()
        snapshot = reader.read(datetime.now(UTC))
        (node_class,) = snapshot.node_classes
        types = build.instance_types(raw, node_class, node_class.spec.kubelet, zones={ZONE}, unavailable=())
        decision = schedule(Problem(snapshot=snapshot, instance_types={"default": types}))
        seconds.append(time.process_time() - started)
        assert decision.claims, decision.errors
    return seconds[-1]


def _measured(nodes: int, pods: int) -> dict[str, float]:
    """:func:`measure` in a process of its own, whose memory nothing else has touched."""
    command = [sys.executable, "-m", "bench.cluster_state", "measure", str(nodes), str(pods)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def run() -> list[Row]:
    """The rows of this part."""
    rows: list[Row] = []

    def row(figure: str, asked: str, measured: str, how: str) -> None:
        rows.append({"figure": figure, "asked": asked, "measured": measured, "how": how})

    how = "canned server in its own process, pods of 5 KB; processor time and peak RSS of the reader"
    small, large = _measured(1_000, 20_000), _measured(5_000, 100_000)
    for size, figures, asked in (
        ("1,000 nodes / 20,000 pods", small, "≤ 0.5 s, ≤ 250 MB"),
        ("5,000 nodes / 100,000 pods", large, "≤ 3 s, ≤ 1.2 GB"),
    ):
        row(f"First snapshot of {size}", asked, f"{figures['list_seconds']:.2f} s, {figures['mib']:.0f} MiB", how)
    row(
        f"Caught up on {CHANGED} changes (20,000 pods)",
        "≤ 100 ms",
        f"{small['catch_up_seconds'] * 1000:.0f} ms" + ("" if small["lists"] == 1 else " (listed again)"),
        "wall time of a warm reader: the pending pods, and the watch up to their version",
    )
    row(
        f"Warm decision, 1,000 nodes / 20,000 pods, {PENDING} pending",
        "≤ 0.5 s",
        f"{small['decide_seconds']:.2f} s",
        "processor time: snapshot caught up, other kinds listed, types built, scheduled; AWS not counted",
    )
    return rows


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", nodes, pods]:
            serve(int(nodes), int(pods))
        case ["measure", nodes, pods]:
            print(json.dumps(measure(int(nodes), int(pods))))
        case _:
            for one in run():
                print(" | ".join(one.values()))
