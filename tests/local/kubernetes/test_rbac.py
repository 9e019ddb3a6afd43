"""RBAC as an API server judges it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver.auth import ADMIN, User
from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.registry.store import Store

API = "rbac.authorization.k8s.io"
ALICE = User("alice", ("readers", "system:authenticated"))


@pytest.fixture
def store() -> Store:
    return Store(now=lambda: datetime(2026, 11, 21, tzinfo=UTC))


def grant(
    store: Store,
    rule: dict[str, Any],
    *,
    namespace: str = "",
    subject: dict[str, str] | None = None,
    role_namespace: str | None = None,
) -> None:
    in_role = namespace if role_namespace is None else role_namespace
    role_kind = kinds.ROLES if in_role else kinds.CLUSTER_ROLES
    binding_kind = kinds.ROLE_BINDINGS if namespace else kinds.CLUSTER_ROLE_BINDINGS
    store.create(role_kind, {"metadata": {"name": "r"}, "rules": [rule]}, namespace=in_role)
    store.create(
        binding_kind,
        {
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": API, "kind": role_kind.kind, "name": "r"},
            "subjects": [subject or {"kind": "Group", "apiGroup": API, "name": "readers"}],
        },
        namespace=namespace,
    )


def rule(*resources: str, verbs: str = "get", group: str = "", **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs.split(","), **more}


def test_only_administrators_are_authorized_without_a_binding(store: Store) -> None:
    rbac = Rbac(store)
    assert not rbac(ALICE, "get", kinds.PODS, "default", "web")
    assert [str(refused) for refused in rbac.denials] == ["alice cannot get pods web in default"]
    assert rbac(ADMIN, "delete", kinds.NODES, "", "n")
    grant(store, rule("pods"))
    assert rbac(ALICE, "get", kinds.PODS, "default", "web")


def test_a_rule_allows_only_its_verbs_resources_and_groups(store: Store) -> None:
    grant(store, rule("deployments", verbs="get,list", group="apps"))
    rbac = Rbac(store)
    assert rbac(ALICE, "list", kinds.DEPLOYMENTS, "default", "")
    assert not rbac(ALICE, "watch", kinds.DEPLOYMENTS, "default", "")
    assert not rbac(ALICE, "list", kinds.STATEFUL_SETS, "default", "")
    assert not rbac(ALICE, "list", kinds.JOBS, "default", "")


def test_a_subresource_needs_a_rule_of_its_own(store: Store) -> None:
    grant(store, rule("pods", verbs="*"))
    below = kinds.Kind("", "v1", "pods/eviction", "Pod")
    assert not Rbac(store)(ALICE, "create", below, "default", "web")


def test_a_role_binding_to_a_cluster_role_is_limited_to_its_namespace(store: Store) -> None:
    grant(store, rule("leases", group="coordination.k8s.io"), namespace="kube-system", role_namespace="")
    rbac = Rbac(store)
    assert rbac(ALICE, "get", kinds.LEASES, "kube-system", "tenon")
    assert not rbac(ALICE, "get", kinds.LEASES, "default", "tenon")
    assert not rbac(ALICE, "list", kinds.LEASES, "", "")


def test_a_rule_can_be_limited_to_resource_names(store: Store) -> None:
    grant(store, rule("nodes", verbs="patch", resourceNames=["mine"]))
    rbac = Rbac(store)
    assert rbac(ALICE, "patch", kinds.NODES, "", "mine")
    assert not rbac(ALICE, "patch", kinds.NODES, "", "yours")


def test_a_service_account_is_known_by_namespace_and_name(store: Store) -> None:
    grant(store, rule("nodes"), subject={"kind": "ServiceAccount", "namespace": "tenon", "name": "relay"})
    rbac = Rbac(store)
    assert rbac(User("system:serviceaccount:tenon:relay"), "get", kinds.NODES, "", "n")
    assert not rbac(User("system:serviceaccount:default:relay"), "get", kinds.NODES, "", "n")


def test_removed_permissions_end_at_once(store: Store) -> None:
    grant(store, rule("nodes"))
    rbac = Rbac(store)
    assert rbac(ALICE, "get", kinds.NODES, "", "n")
    store.delete(kinds.CLUSTER_ROLE_BINDINGS, "b")
    assert not rbac(ALICE, "get", kinds.NODES, "", "n")
