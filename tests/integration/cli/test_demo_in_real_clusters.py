"""``tenon demo --kubeconfig``: which clusters it refuses. tests/real runs it in one that it takes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cli.demo.request import DemoRequest
from cli.demo.runner import run
from cli.errors import FAILED, USAGE
from local.kubernetes import kinds
from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@pytest.fixture
def store() -> Store:
    return Store(now=lambda: datetime.now(UTC))


@pytest.fixture
def kubeconfig(store: Store, tmp_path: Path) -> Iterator[Path]:
    with Server(store) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig())
        yield path


def node(name: str, *, control_plane: bool, taints: list[dict[str, Any]]) -> dict[str, Any]:
    labels = {CONTROL_PLANE: ""} if control_plane else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


@pytest.mark.parametrize(
    ("control_plane", "message"),
    [
        (False, "the cluster has nodes of its own, such as kind-worker; give one that is thrown away"),
        (True, "kubectl taint node kind-worker node-role.kubernetes.io/control-plane:NoSchedule"),
    ],
)
def test_a_cluster_with_a_node_that_takes_pods_is_refused_before_anything_is_written(
    store: Store, kubeconfig: Path, capsys: pytest.CaptureFixture[str], message: str, *, control_plane: bool
) -> None:
    store.create(kinds.NODES, node("kind-worker", control_plane=control_plane, taints=[]))
    before = store.version_of(kinds.CLUSTER_ROLE_BINDINGS)

    assert run(DemoRequest(kubeconfig=kubeconfig)) == FAILED

    assert message in " ".join(capsys.readouterr().err.split())
    assert store.version_of(kinds.CLUSTER_ROLE_BINDINGS) == before
    assert store.list(kinds.SERVICE_ACCOUNTS) == []


def test_a_file_that_is_not_a_kubeconfig_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    assert run(DemoRequest(kubeconfig=path)) == USAGE
    assert "is not a kubeconfig" in " ".join(capsys.readouterr().err.split())
