"""What commands print of one node, one pod and one instance type never has a plural."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cli.command import call

if TYPE_CHECKING:
    from pathlib import Path

PLURALS = re.compile(
    r"\b1 (?:\w+ )?(chunks|decisions|launches|nodes|objects|offerings|pods|pools|replicas|terms|types|values)\b"
)
REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


def _pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [{"kind": "ReplicaSet", "name": "r"}]},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": "Running"} if "nodeName" in spec else {"phase": "Pending", "conditions": conditions},
    }


def _node_pool(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"nodeClassRef": REF, "requirements": [ON_DEMAND]}}, **spec},
    }


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "karpenter.sh/nodepool": "default",
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
            "karpenter.sh/capacity-type": "on-demand",
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "us-east-1a",
        },
    },
    "spec": {"providerID": "aws:///us-east-1a/i-1"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "1900m", "memory": "7Gi", "pods": "29"},
        "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
    },
}
TYPE = {
    "name": "m5.large",
    "arch": "amd64",
    "os": "linux",
    "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
    "overhead": {"cpu": "100m"},
    "offerings": [{"zone": "us-east-1a", "capacityType": "on-demand", "price": 0.1, "available": True}],
}
OBJECTS = [
    NODE,
    _node_pool("default", limits={"cpu": "16"}),
    _node_pool("static", replicas=1),
    _pod("running", "100m", nodeName="n1"),
    _pod("waiting", "1850m"),
    _pod("large", "64"),
]


@pytest.mark.parametrize(
    "command",
    [
        "plan",
        "plan --without us-east-1a",
        "nodes --once",
        "explain node n1",
        "explain pod waiting",
        "explain pod large",
        "explain nodepool default",
        "explain nodepool static",
        "simulate",
    ],
)
def test_one_has_no_plural(command: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"objects": OBJECTS, "instanceTypes": [TYPE]}))
    arguments = command.split()
    done = call(*arguments, *(() if command == "simulate" else ("-f",)), str(file))
    assert done.code == 0, done.out + done.err
    assert re.search(r"\b1 \w+", done.out) or "explain" in command
    text = f"{done.out}\n{done.err}"
    assert [match[0] for match in PLURALS.finditer(text)] == [], text
