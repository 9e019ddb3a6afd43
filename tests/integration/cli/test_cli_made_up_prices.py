"""Prices that aren't AWS's are said to be made up wherever a figure depends on them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cli.test_cli_nodes_selection import node, pod

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

NODE_CLASS = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": "node",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    },
}
REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
REQUIREMENTS = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}]
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {"template": {"spec": {"nodeClassRef": REFERENCE, "requirements": REQUIREMENTS}}},
}
PENDING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "waits", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "7"}}}]},
    "status": {"phase": "Pending"},
}


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    def write(**document: Any) -> tuple[str, str]:
        objects = [NODE_CLASS, POOL, node("busy"), pod("web", "busy"), PENDING]
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"objects": objects, **document}))
        return "-f", str(path)

    return write


def test_without_aws_every_total_of_dollars_says_that_prices_are_made_up(
    tenon: Callable[..., CommandResult], files: Callable[..., tuple[str, str]]
) -> None:
    file = files()
    planned = tenon("plan", *file)
    totals = [line for line in planned.lines if ("/h" in line and "·" in line) or "per hour" in line]
    assert len(totals) >= 3, planned.out
    assert all("made-up prices" in line for line in totals), planned.out
    assert "note: prices are made up" in planned.out
    assert "made-up prices" in tenon("nodes", *file).lines[0]
    assert "note: prices are made up" in tenon("explain", "pod", "waits", *file).out
    assert tenon("plan", *file, "--json").json["costPerHour"]["prices"] == "made-up"
    assert tenon("nodes", *file, "--json").json["prices"] == "made-up"
    assert tenon("explain", "pod", "waits", *file, "--json").json["notes"][0].startswith("prices are made up")


def test_prices_that_a_file_lists_are_the_users_own(
    tenon: Callable[..., CommandResult], files: Callable[..., tuple[str, str]]
) -> None:
    offering = {"zone": "us-east-1a", "capacityType": "spot", "price": 0.1, "available": True}
    listed = {
        "name": "c7i.2xlarge",
        "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "58"},
        "offerings": [offering],
    }
    file = files(instanceTypes=[listed])
    planned = tenon("plan", *file)
    assert "made" not in planned.out
    assert tenon("plan", *file, "--json").json["costPerHour"]["prices"] == "files"
