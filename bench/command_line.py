"""The time of `tenon` commands for a cluster of 1,000 nodes and 20,000 pods, read from kubectl's JSON output.

Each command runs in its own process, as a user starts it. Imports and the time limit of the consolidation search are
included.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.consolidation import pod, underutilized
from shared.api import labels as names
from shared.api.meta import to_json
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from bench.consolidation import Cluster

Row = dict[str, str]
NODES, PODS, PENDING = 1_000, 20_000, 100
POD_BYTES = 5_000
_CLASS = {"group": names.AWS_GROUP, "kind": "EC2NodeClass", "name": "default"}
_TENON = [sys.executable, "-c", "from cli.main import run; run()"]


def kubectl_output(cluster: Cluster, *, pod_bytes: int = 0) -> dict[str, Any]:
    """The output of `kubectl get … -o json`; pods are padded to ``pod_bytes``."""
    items: list[dict[str, Any]] = []
    for kind, api_version, objects in (
        ("Node", "v1", cluster.snapshot.nodes),
        ("NodeClaim", "karpenter.sh/v1", cluster.snapshot.node_claims),
        ("Pod", "v1", cluster.snapshot.pods),
    ):
        for obj in objects:
            item = {"apiVersion": api_version, "kind": kind, **to_json(obj)}
            if kind == "Pod":
                filler = "x" * max(0, pod_bytes - len(json.dumps(item)) - 70)
                item["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:status": filler}}]
            if kind == "NodeClaim":
                item["spec"] = {"nodeClassRef": _CLASS, "expireAfter": "Never"}
            items.append(item)
    template = {"spec": {"nodeClassRef": _CLASS, "requirements": [], "expireAfter": "Never"}}
    pool = {"template": template, "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "10%"}]}}
    items.append({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": pool})
    return {"apiVersion": "v1", "kind": "List", "items": items}


def instance_types_document(cluster: Cluster) -> dict[str, Any]:
    """The instance types of the cluster, as a document of `tenon simulate`."""
    return {
        "instanceTypes": [
            {
                "name": t.name,
                "arch": "amd64",
                "os": "linux",
                "capacity": {"cpu": f"{t.capacity['cpu']}m", "memory": str(t.capacity["memory"]), "pods": "110"},
                "overhead": {"cpu": f"{t.overhead['cpu']}m", "memory": str(t.overhead["memory"])},
                "offerings": [{"zone": o.zone, "capacityType": o.capacity_type, "price": o.price} for o in t.offerings],
            }
            for t in cluster.types
        ]
    }


def large() -> Cluster:
    """The measured cluster; a hundred of its pods are pending."""
    cluster = underutilized(NODES, PODS, seed=1)
    rng = random.Random(1)  # noqa: S311 (which pods are pending)
    pending = set(rng.sample(range(len(cluster.snapshot.pods)), PENDING))
    pods = tuple(
        with_fields(pod(p.metadata.name, (1000, 2048)), metadata=p.metadata) if i in pending else p
        for i, p in enumerate(cluster.snapshot.pods)
    )
    return with_fields(cluster, snapshot=with_fields(cluster.snapshot, pods=pods))


def run() -> list[Row]:
    """The rows of this part."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = large()
        dump, types = Path(folder) / "cluster.json", Path(folder) / "types.json"
        dump.write_text(json.dumps(kubectl_output(cluster, pod_bytes=POD_BYTES)))
        types.write_text(json.dumps(instance_types_document(cluster)))
        size = dump.stat().st_size / 1e6
        files = ["-f", str(dump), "-f", str(types)]
        pending = next(p.metadata.name for p in cluster.snapshot.pods if not p.spec.node_name)
        node = cluster.snapshot.nodes[0].metadata.name
        commands = (
            ("tenon plan", "under 5 s", ["plan", *files]),
            ("tenon explain pod", "none", ["explain", "pod", pending, *files]),
            ("tenon explain node", "none", ["explain", "node", node, *files]),
            ("tenon nodes --once", "none", ["nodes", "--once", *files]),
        )
        return [_row(name, limit, arguments, size) for name, limit, arguments in commands]


def _row(name: str, target: str, arguments: list[str], megabytes: float) -> Row:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.perf_counter()
    subprocess.run([*_TENON, *arguments], check=True, capture_output=True)
    wall = time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "measurement": f"{name}, {NODES:,} nodes / {PODS:,} pods, {PENDING} pending",
        "target": target,
        "result": f"{spent:.1f} s of processor time ({wall:.1f} s wall time)",
        "method": f"own process, a file of {megabytes:.0f} MB; includes imports and the 2 s consolidation search",
    }
