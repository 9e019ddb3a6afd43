"""``tenon demo --kubeconfig``, in another process, on a control plane that takes the place of a throw-away cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.real.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

TENON = [sys.executable, "-c", "from cli.main import run; run()", "demo"]
CHECKOUT = Path(__file__).parent.parent.parent
NODES = "/api/v1/nodes"


@pytest.fixture
def cluster(kubeconfig: Path | None, kubernetes: str) -> Iterator[ControlPlane]:
    """A cluster without nodes."""
    if kubeconfig is not None:
        pytest.skip("the demo would leave objects in the throw-away cluster of the other tests")
    with ControlPlane(kubernetes=kubernetes) as control_plane:
        yield control_plane


def demo(cluster: ControlPlane, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(cluster.kubeconfig())
    command = [*TENON, "--kubeconfig", str(path), *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=500, check=False)


def test_nodes_are_launched_for_the_demos_pods_and_terminated_when_they_are_empty(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    done = demo(cluster, tmp_path, "--scale", "inflate=3,0", "--rest", "2", "--json")

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["pods_scheduled"] == 3
    assert figures["nodes_launched"]
    assert figures["instances_left"] == figures["dead_letters"] == figures["duplicate_launches"] == 0
    client = cluster.client()
    try:
        assert json.loads(client.get(NODES))["items"] == []
        assert json.loads(client.get("/apis/karpenter.sh/v1/nodeclaims"))["items"] == []
    finally:
        client.close()


def test_a_cluster_with_a_node_of_its_own_is_refused_and_left_alone(cluster: ControlPlane, tmp_path: Path) -> None:
    client = cluster.client()
    try:
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}})

        done = demo(cluster, tmp_path, "--json")

        assert done.returncode == 1
        assert "nodes of its own, such as mine" in done.stderr
        assert "--allow-nodes" in done.stderr
        assert json.loads(client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))["items"] == []
    finally:
        client.close()
