"""Traffic between zones in `tenon plan`, from the Services and pods of files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.command_line import instance_types_document, kubectl_output
from bench.consolidation import underutilized

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec},
    }


def test_pods_of_consolidated_nodes_count_where_they_find_room(
    tenon: Callable[..., CommandResult], tmp_path: Path
) -> None:
    cluster = underutilized(20, 150, seed=1)
    listed = kubectl_output(cluster)
    pods = [obj for obj in listed["items"] if obj["kind"] == "Pod"]
    for obj in pods:
        obj["metadata"]["labels"]["tier"] = "any"
        obj["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    listed["items"].append(service("all", selector={"tier": "any"}))
    (tmp_path / "cluster.json").write_text(json.dumps(listed))
    (tmp_path / "types.json").write_text(json.dumps(instance_types_document(cluster)))
    files = "-f", str(tmp_path / "cluster.json"), "-f", str(tmp_path / "types.json")
    plan = tenon("plan", *files, "--search", "20", "--json").json
    assert sum(len(a["podsToMove"]) for a in plan["disruption"]["actions"]) > 0
    (traffic,) = plan["crossZoneTraffic"]["services"]
    assert traffic["endpointsBefore"] == traffic["endpointsAfter"] == len(pods)
    assert 0 < traffic["shareAfter"] < 1


def pod(name: str, node: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "web"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
def three_zones() -> list[dict[str, Any]]:
    """A node in each of three zones, with a ready pod each."""
    nodes = [
        {"kind": "Node", "metadata": {"name": z, "labels": {"topology.kubernetes.io/zone": z}}, "status": {}}
        for z in ZONES
    ]
    return [*nodes, *(pod(f"web-{z}", z) for z in ZONES)]


def test_services_of_files_count(
    tenon: Callable[..., CommandResult], three_zones: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": three_zones}))
    shown = tenon("plan", "-f", str(path))
    assert shown.code == 0
    assert "cross-zone traffic: not known: the files have no Services (kubectl get services -A -o json)" in shown.lines
    path.write_text(json.dumps({"kind": "List", "items": [*three_zones, service("web")]}))
    shown = tenon("plan", "-f", str(path))
    assert (
        "cross-zone traffic: 67% of evenly distributed Service traffic crosses zones now ($20 per TB that crosses)"
    ) in shown.lines
    assert "left out" not in shown.out
