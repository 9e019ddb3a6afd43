"""When an eviction is granted, and when a budget blocks it."""

from __future__ import annotations

import random  # noqa: TC003 (hypothesis reads the annotation)
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.kubernetes import kinds
from local.kubernetes.errors import ApiError
from tests.local.kubernetes.conftest import Cluster, owner

if TYPE_CHECKING:
    from local.kubernetes.registry.store import Store


def web(cluster: Cluster, replicas: int, ready: int | None = None) -> None:
    replica_set = cluster.replica_set(cluster.deployment("web", replicas))
    for index in range(replicas):
        cluster.pod(
            f"web-{index}",
            node="n",
            ready=index < (replicas if ready is None else ready),
            labels={"app": "web"},
            ownerReferences=[owner(replica_set)],
        )


def figures(store: Store) -> tuple[int, int, int, int]:
    status = store.get(kinds.POD_DISRUPTION_BUDGETS, "keep", namespace="default")["status"]
    return status["disruptionsAllowed"], status["currentHealthy"], status["desiredHealthy"], status["expectedPods"]


def evicted(store: Store, name: str) -> bool:
    try:
        store.evict("default", name)
    except ApiError as error:
        if error.status == 429:
            return False
        raise
    return True


def test_an_evicted_pod_terminates_with_a_disruption_target_condition(cluster: Cluster) -> None:
    cluster.pod("a", node="n", ready=True)
    cluster.store.evict("default", "a")
    pod = cluster.store.get(kinds.PODS, "a", namespace="default")
    assert "deletionTimestamp" in pod["metadata"]
    condition = pod["status"]["conditions"][-1]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxUnavailable": 1}, (1, 4, 3, 4)),
        ({"maxUnavailable": "30%"}, (2, 4, 2, 4)),
        ({"minAvailable": 3}, (1, 4, 3, 4)),
        ({"minAvailable": "60%"}, (1, 4, 3, 4)),
        ({"maxUnavailable": 0}, (0, 4, 4, 4)),
        ({"minAvailable": "100%"}, (0, 4, 4, 4)),
    ],
)
def test_a_budgets_status_is_the_disruption_controllers(
    cluster: Cluster, spec: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    web(cluster, 4)
    cluster.budget(**spec)
    assert figures(cluster.store) == expected


def test_a_budget_is_used_up_and_recovers_when_a_pod_becomes_ready(cluster: Cluster) -> None:
    web(cluster, 3)
    cluster.budget(maxUnavailable=1)
    assert evicted(cluster.store, "web-0")
    assert figures(cluster.store) == (0, 2, 2, 3)
    with pytest.raises(ApiError, match="Cannot evict pod as it would violate the pod's disruption budget") as blocked:
        cluster.store.evict("default", "web-1")
    assert blocked.value.details["causes"][0]["message"] == (
        "The disruption budget keep needs 2 healthy pods and has 2 currently"
    )
    replica_set = cluster.store.get(kinds.REPLICA_SETS, "web-1", namespace="default")
    cluster.pod("web-new", node="m", ready=True, labels={"app": "web"}, ownerReferences=[owner(replica_set)])
    assert evicted(cluster.store, "web-1")


def test_a_budgets_status_follows_the_scale(cluster: Cluster) -> None:
    web(cluster, 3)
    cluster.budget(minAvailable="100%")
    cluster.store.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, namespace="default")
    assert figures(cluster.store) == (1, 3, 2, 2)


def test_a_pod_that_does_not_run_is_evicted_whatever_the_budget(cluster: Cluster) -> None:
    cluster.pod("a", labels={"app": "web"})
    cluster.budget(maxUnavailable=0)
    assert evicted(cluster.store, "a")


def test_an_unready_pod_is_evicted_only_while_the_others_are_enough(cluster: Cluster) -> None:
    web(cluster, 3, ready=2)
    running = {"status": {"phase": "Running"}}
    cluster.store.patch(kinds.PODS, "web-2", running, namespace="default", subresource="status")
    cluster.budget(minAvailable=3)
    assert not evicted(cluster.store, "web-2")
    always = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    cluster.store.patch(kinds.POD_DISRUPTION_BUDGETS, "keep", always, namespace="default")
    assert evicted(cluster.store, "web-2")


def test_two_budgets_over_one_pod_are_an_error(cluster: Cluster) -> None:
    web(cluster, 2)
    cluster.budget("keep", maxUnavailable=1)
    cluster.budget("also", maxUnavailable=1)
    with pytest.raises(ApiError, match="more than one PodDisruptionBudget") as refused:
        cluster.store.evict("default", "web-0")
    assert refused.value.status == 500


@given(replicas=st.integers(1, 6), least=st.integers(0, 6), order=st.randoms(use_true_random=False))
def test_evictions_never_leave_fewer_ready_pods_than_the_budget_requires(
    replicas: int, least: int, order: random.Random
) -> None:
    cluster = Cluster()
    web(cluster, replicas)
    cluster.budget(minAvailable=least)
    names = [f"web-{index}" for index in range(replicas)]
    order.shuffle(names)
    gone = sum(evicted(cluster.store, name) for name in names)
    assert gone == max(replicas - least, 0)
    assert figures(cluster.store)[1] == replicas - gone


def test_an_eviction_checks_preconditions_and_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    cluster.pod("a", node="n", ready=True)
    with pytest.raises(ApiError) as refused:
        cluster.store.evict("default", "a", options={"preconditions": {"uid": "other"}})
    assert refused.value.status == 409
    before = cluster.store.version
    cluster.store.evict("default", "a", options={"dryRun": ["All"]})
    assert cluster.store.version == before
    cluster.store.evict("default", "a", options={"gracePeriodSeconds": 7})
    pod = cluster.store.get(kinds.PODS, "a", namespace="default")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
