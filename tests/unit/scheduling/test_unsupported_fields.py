"""A pod that uses a field that isn't supported gets no node and a reason that names the field; others continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from shared.scheduling.state.daemonsets import daemon_set_pods
from tests.scenarios import simulation

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]

BY_TEMPLATE = {"resourceClaims": [{"name": "accelerator", "resourceClaimTemplateName": "half-an-accelerator"}]}
BY_NAME = {"resourceClaims": [{"name": "nic", "resourceClaimName": "shared-nic"}]}
USE = {"claims": [{"name": "accelerator", "request": "fast"}]}


def containers(**resources: object) -> list[Raw]:
    return [{"name": "main", "resources": {"requests": {"cpu": "300m"}, **resources}}]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (BY_TEMPLATE, "spec.resourceClaims"),
        (BY_NAME, "spec.resourceClaims"),
        ({**BY_TEMPLATE, "containers": containers(**USE)}, "spec.resourceClaims"),
        ({"containers": containers(**USE)}, "spec.containers[0].resources.claims"),
        ({"initContainers": containers(**USE)}, "spec.initContainers[0].resources.claims"),
        ({"resources": {"requests": {"cpu": "1"}, **USE}}, "spec.resources.claims"),
        ({"workloadRef": {"name": "training", "podGroup": "workers"}}, "spec.workloadRef"),
    ],
)
def test_nothing_is_launched_for_it_and_the_others_get_their_nodes(
    decide: Decide, clusters: ModuleType, spec: Raw, field: str
) -> None:
    plain = clusters.pods("web", 3, "700m")
    decision = decide(clusters.document(clusters.pool(), plain, clusters.pods("needs", 2, "1500m", **spec)))
    alone = decide(clusters.document(clusters.pool(), plain))
    assert {pod for claim in decision["nodeClaims"] for pod in claim["pods"]} == {
        f"default/web-000{i}" for i in range(3)
    }
    assert [c["cheapest"] for c in decision["nodeClaims"]] == [c["cheapest"] for c in alone["nodeClaims"]]
    assert set(decision["errors"]) == {"default/needs-0000", "default/needs-0001"}
    assert all(f"{field} (" in message for message in decision["errors"].values())


def test_empty_lists_are_not_a_use(decide: Decide, clusters: ModuleType) -> None:
    pods = clusters.pods("web", 1, resourceClaims=[], containers=containers(claims=[]))
    assert decide(clusters.document(clusters.pool(), pods))["errors"] == {}


def test_room_on_a_node_is_left_to_other_pods(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(), clusters.node("big", 16), clusters.pods("a", 1, **BY_NAME)))
    assert decision["existingNodes"] == {}
    assert "spec.resourceClaims" in decision["errors"]["default/a-0000"]


def test_an_extended_resource_that_only_a_device_class_backs_is_named(decide: Decide, clusters: ModuleType) -> None:
    resources = {"requests": {"cpu": "100m", "accelerators.example.net/tile": "2"}}
    pods = clusters.pods("a", 1, containers=[{"name": "main", "resources": resources}])
    decision = decide(clusters.document(clusters.pool(), pods))
    assert decision["nodeClaims"] == []
    assert "accelerators.example.net/tile" in decision["errors"]["default/a-0000"]


def test_a_daemon_set_with_claims_takes_no_room_of_new_nodes(clusters: ModuleType) -> None:
    def daemon_set(name: str, **spec: object) -> Raw:
        template = {"spec": {"containers": containers(), **spec}}
        metadata = {"name": name, "namespace": "default"}
        return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"template": template}}

    document = clusters.document(daemon_set("logs"), daemon_set("device-monitor", **BY_TEMPLATE))
    (pod,) = daemon_set_pods(simulation.simulation_input(document).problem.snapshot)
    assert pod.requests["cpu"] == 300
