"""The ClusterRole of `tenon export --manifests` is enough, and each of its rules is needed."""

from __future__ import annotations

import random
from copy import deepcopy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cli.cluster.cluster_reference import ClusterReference
from cli.export import manifests
from cli.export.cluster_reader import ClusterReader
from infra.cluster.kubernetes import cluster_manifests
from local.kubernetes.apiserver.auth import User
from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store
from local.world.apply import apply_object
from shared.cluster.errors import ForbiddenError

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = "prod"
TOKEN = "of-the-export"
USER = User(
    f"system:serviceaccount:{cluster_manifests.NAMESPACE}:{manifests.NAME}",
    ("system:serviceaccounts", "system:authenticated"),
)
SUBJECT = {"kind": "ServiceAccount", "name": manifests.NAME, "namespace": cluster_manifests.NAMESPACE}
OBJECTS = manifests.access(CLUSTER, SUBJECT)
RULES = next(o for o in OBJECTS if o["kind"] == "ClusterRole")["rules"]


def read(path: Path, monkeypatch: pytest.MonkeyPatch, objects: list[dict[str, Any]]) -> Any:
    """Read an empty cluster with the rights that these objects give."""
    now = datetime.now(UTC)
    store = Store(now=lambda: now, rng=random.Random(0))  # noqa: S311 (names of simulated objects)
    rbac = Rbac(store)
    for obj in [*cluster_manifests.kinds(), *objects]:
        apply_object(store, obj)
    with Server(store, authenticate=lambda token: USER if token == TOKEN else None, authorize=rbac) as server:
        kubeconfig = path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig(TOKEN))
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        return ClusterReader(ClusterReference(cluster=CLUSTER)).read(now)


def test_the_rights_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = read(tmp_path, monkeypatch, OBJECTS)
    assert state.is_pause_known
    assert state.snapshot.pods == ()


@pytest.mark.parametrize(
    ("rule", "resource"), [(n, resource) for n, rule in enumerate(RULES) for resource in rule["resources"]]
)
def test_each_resource_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: int, resource: str) -> None:
    objects = deepcopy(OBJECTS)
    role = next(o for o in objects if o["kind"] == "ClusterRole")
    role["rules"][rule]["resources"].remove(resource)
    role["rules"] = [r for r in role["rules"] if r["resources"]]
    with pytest.raises(ForbiddenError):
        read(tmp_path, monkeypatch, objects)


def test_without_rights_on_the_lease_only_the_pause_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [o for o in OBJECTS if o["kind"] not in {"Role", "RoleBinding"}]
    assert not read(tmp_path, monkeypatch, objects).is_pause_known
