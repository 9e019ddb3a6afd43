"""New nodes have room for what their DaemonSets' pods will request once the API server has admitted them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shared.scheduling.state.daemonsets import daemon_set_pods
from tests.scenarios import simulation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

Raw = dict[str, Any]


def daemon_set(resources: Raw, namespace: str = "default", **spec: object) -> Raw:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [{"name": "agent", "resources": resources}], **spec}}},
    }


def limit_range(*limits: Raw, name: str = "defaults", namespace: str = "default") -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"limits": list(limits)},
    }


def daemon_pod(name: str, created: str, cpu: str, owner: str = "agent") -> Raw:
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner, "uid": "u", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": created,
            "ownerReferences": [reference],
        },
        "spec": {"nodeName": "elsewhere", "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
    }


def requests_of(clusters: ModuleType, *objects: Raw) -> dict[str, int]:
    (pod,) = daemon_set_pods(simulation.simulation_input(clusters.document(*objects)).problem.snapshot)
    return {name: amount for name, amount in pod.requests.items() if name in {"cpu", "memory"}}


CONTAINER = {"type": "Container"}


@pytest.mark.parametrize(
    ("item", "resources", "expected"),
    [
        ({"default": {"cpu": "2"}}, {}, {"cpu": 2000}),
        ({"defaultRequest": {"cpu": "1"}, "default": {"cpu": "2"}}, {}, {"cpu": 1000}),
        ({"max": {"cpu": "3"}}, {}, {"cpu": 3000}),
        ({"min": {"cpu": "100m"}}, {}, {"cpu": 100}),
        ({"default": {"cpu": "2"}}, {"limits": {"cpu": "500m"}}, {"cpu": 500}),
        ({"default": {"cpu": "2"}}, {"requests": {"cpu": "100m"}}, {"cpu": 100}),
        ({"default": {"cpu": "2"}}, {"limits": {"memory": "1Ki"}}, {"cpu": 2000, "memory": 1024}),
    ],
)
def test_a_limit_range_gives_requests_to_containers_that_state_none(
    clusters: ModuleType, item: Raw, resources: Raw, expected: dict[str, int]
) -> None:
    assert requests_of(clusters, limit_range({**CONTAINER, **item}), daemon_set(resources)) == expected


def test_init_containers_get_defaults_too(clusters: ModuleType) -> None:
    daemon = daemon_set({"requests": {"cpu": "100m"}}, initContainers=[{"name": "init"}])
    assert requests_of(clusters, limit_range({**CONTAINER, "default": {"cpu": "1"}}), daemon) == {"cpu": 1000}


def test_only_container_limits_of_the_own_namespace_count(clusters: ModuleType) -> None:
    elsewhere = limit_range({**CONTAINER, "default": {"cpu": "2"}}, namespace="other")
    of_pods = limit_range({"type": "Pod", "max": {"cpu": "2"}}, name="pods")
    assert requests_of(clusters, elsewhere, of_pods, daemon_set({})) == {}


def test_of_several_limit_ranges_the_largest_default_counts(clusters: ModuleType) -> None:
    ranges = [limit_range({**CONTAINER, "default": {"cpu": cpu}}, name=f"r{cpu}") for cpu in ("500m", "2", "1")]
    assert requests_of(clusters, *ranges, daemon_set({})) == {"cpu": 2000}


def test_the_newest_running_pod_counts_where_it_requests_more_than_the_template(clusters: ModuleType) -> None:
    pods = [
        daemon_pod("old", "2026-11-20T10:00:00Z", "4"),
        daemon_pod("new", "2026-11-20T11:00:00Z", "2"),
        daemon_pod("another", "2026-11-20T12:00:00Z", "8", owner="another"),
    ]
    assert requests_of(clusters, *pods, daemon_set({"requests": {"cpu": "1"}})) == {"cpu": 2000}
    assert requests_of(clusters, *pods, daemon_set({"requests": {"cpu": "3"}})) == {"cpu": 3000}


def test_a_new_node_has_room_for_a_daemon_with_default_requests(
    decide: Callable[[Raw], Raw], clusters: ModuleType
) -> None:
    smallest = decide(clusters.document(clusters.pool(), daemon_set({}), clusters.pods("a", 1, "1")))
    assert smallest["nodeClaims"][0]["instanceTypes"][0].endswith(".large")
    ranges = limit_range({**CONTAINER, "default": {"cpu": "2"}})
    decision = decide(clusters.document(clusters.pool(), ranges, daemon_set({}), clusters.pods("a", 1, "1")))
    assert not any(t.endswith(".large") for t in decision["nodeClaims"][0]["instanceTypes"])
