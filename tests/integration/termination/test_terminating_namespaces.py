"""Pods of a namespace that is being deleted: the API server refuses their eviction, and the namespace takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.kinds import NAMESPACES, PODS

if TYPE_CHECKING:
    from local.kubernetes.apiserver.http import Request
    from tests.integration.termination.conftest import Environment


def test_the_event_says_so_instead_of_a_missing_right_and_the_drain_ends_with_the_pod(env: Environment) -> None:
    env.a_node("old")
    env.store.create(NAMESPACES, {"metadata": {"name": "shop"}})
    spec = {"nodeName": "old", "containers": [{"name": "c", "image": "x"}]}
    env.store.create(PODS, {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})

    def delete_namespace(request: Request) -> None:
        """Between the drain's list of pods and its eviction."""
        if "eviction" in request.path and "shop" in {obj["metadata"]["name"] for obj in env.store.list(NAMESPACES)}:
            env.store.delete(NAMESPACES, "shop")

    env.before_request = delete_namespace
    env.delete("claim-old")
    env.run(until=lambda: bool(env.events("FailedDraining")))
    (event,) = env.events("FailedDraining")
    why = "its namespace is being deleted, and the pod with it"
    assert event["message"] == f"Failed to drain node, pod shop/web can't be evicted now: {why}"

    env.store.delete(PODS, "web", namespace="shop", grace_period_seconds=0)  # the kubelet
    env.run()

    assert env.claims() == env.nodes() == []
