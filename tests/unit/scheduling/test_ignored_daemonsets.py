"""DaemonSets that new nodes keep no room for are named, each with the reason and the NodePools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.scheduling.state.ignored_daemonsets import ignored_daemon_sets
from tests.scenarios import simulation

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
LEFT_OUT = "its pods are left out of the room that new nodes keep for DaemonSets"


def daemon_set(name: str, requests: Raw, **spec: object) -> Raw:
    containers = [{"name": "c", "image": "x", "resources": {"requests": requests}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "monitoring"},
        "spec": {"selector": {}, "template": {"spec": {"containers": containers, **spec}}},
    }


def ignored(clusters: ModuleType, *objects: Raw, types: list[Raw] | None = None) -> dict[str, str]:
    document = clusters.document(*objects)
    if types is not None:
        document["instanceTypes"] = types
    problem = simulation.simulation_input(document).problem
    return {ref.name: why for ref, why in ignored_daemon_sets(problem.snapshot, problem.instance_types)}


def test_the_resource_and_the_pools_are_named(clusters: ModuleType) -> None:
    agent = daemon_set("agent", {"cpu": "1", "example.org/a": "1", "example.org/b": "2", "example.org/none": "0"})
    assert ignored(clusters, clusters.pool("one"), agent) == {
        "agent": "example.org/a is offered by no instance type of NodePool one and "
        f"example.org/b is offered by no instance type of NodePool one; {LEFT_OUT}"
    }
    both = ignored(clusters, clusters.pool("two"), clusters.pool("one"), daemon_set("agent", {"example.org/a": "1"}))
    assert both == {"agent": f"example.org/a is offered by no instance type of NodePools one, two; {LEFT_OUT}"}


def test_a_device_that_one_type_has_is_not_reported(clusters: ModuleType) -> None:
    with_device = clusters.instance_type("p1.xlarge", 4, 16, 2.0)
    with_device["capacity"]["example.org/card"] = "1"
    types = [clusters.instance_type("c1.xlarge", 4, 8, 0.2), with_device]
    agent = daemon_set("agent", {"example.org/card": "1"})
    assert ignored(clusters, clusters.pool(), agent, types=types) == {}


def test_pools_whose_nodes_would_not_run_the_pods_anyway_are_not_named(clusters: ModuleType) -> None:
    elsewhere = daemon_set("agent", {"example.org/a": "1"}, nodeSelector={"team": "lab"})
    assert ignored(clusters, clusters.pool(), elsewhere) == {}
    assert ignored(clusters, clusters.pool(), daemon_set("plain", {"cpu": "1", "memory": "1Gi"})) == {}


def test_a_daemon_set_with_resource_claims_is_named_with_the_field(clusters: ModuleType) -> None:
    claims = [{"name": "card", "resourceClaimName": "card"}]
    (why,) = ignored(clusters, clusters.pool(), daemon_set("agent", {}, resourceClaims=claims)).values()
    assert why.startswith("not supported: spec.resourceClaims (dynamic resource allocation)")
    assert why.endswith(LEFT_OUT)
