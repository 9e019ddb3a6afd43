"""What happens to dependents when their owner goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from tests.local.kubernetes.conftest import owner

if TYPE_CHECKING:
    from tests.local.kubernetes.conftest import Cluster


def family(cluster: Cluster) -> tuple[dict[str, Any], dict[str, Any]]:
    deployment = cluster.deployment("web", 1)
    replica_set = cluster.replica_set(deployment)
    cluster.pod("web-1-a", ownerReferences=[owner(replica_set)])
    return deployment, replica_set


def names(cluster: Cluster) -> list[str]:
    every = (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.PODS)
    return [obj["metadata"]["name"] for kind in every for obj in cluster.store.list(kind)]


def test_dependents_are_deleted_with_their_owner(cluster: Cluster) -> None:
    family(cluster)
    cluster.store.delete(kinds.DEPLOYMENTS, "web", namespace="default")
    assert names(cluster) == []


def test_a_bound_pod_is_left_terminating(cluster: Cluster) -> None:
    family(cluster)
    cluster.store.bind("default", "web-1-a", "n")
    cluster.store.delete(kinds.DEPLOYMENTS, "web", namespace="default")
    assert names(cluster) == ["web-1-a"]
    assert "deletionTimestamp" in cluster.store.get(kinds.PODS, "web-1-a", namespace="default")["metadata"]


def test_orphaned_dependents_are_kept(cluster: Cluster) -> None:
    family(cluster)
    cluster.store.delete(kinds.DEPLOYMENTS, "web", namespace="default", propagation="Orphan")
    assert names(cluster) == ["web-1", "web-1-a"]
    assert "ownerReferences" not in cluster.store.get(kinds.REPLICA_SETS, "web-1", namespace="default")["metadata"]


def test_foreground_deletion_removes_the_owner_last(cluster: Cluster) -> None:
    family(cluster)
    cluster.store.bind("default", "web-1-a", "n")
    cluster.store.delete(kinds.DEPLOYMENTS, "web", namespace="default", propagation="Foreground")
    assert names(cluster) == ["web", "web-1", "web-1-a"]
    cluster.store.delete(kinds.PODS, "web-1-a", namespace="default", grace_period_seconds=0)
    assert names(cluster) == []


def test_a_dependent_with_another_owner_left_stays(cluster: Cluster) -> None:
    first, second = cluster.deployment("a", 1), cluster.deployment("b", 1)
    cluster.pod("shared", ownerReferences=[owner(first), {**owner(second), "controller": False}])
    cluster.store.delete(kinds.DEPLOYMENTS, "a", namespace="default")
    pod = cluster.store.get(kinds.PODS, "shared", namespace="default")
    assert [reference["name"] for reference in pod["metadata"]["ownerReferences"]] == ["b"]


def test_objects_created_with_a_missing_owner_are_garbage_collected(cluster: Cluster) -> None:
    deployment = cluster.deployment("web", 1)
    cluster.store.delete(kinds.DEPLOYMENTS, "web", namespace="default")
    cluster.pod("late", ownerReferences=[owner(deployment)])
    assert cluster.store.collect_garbage()
    assert names(cluster) == []
    assert not cluster.store.collect_garbage()
