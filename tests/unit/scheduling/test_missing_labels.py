"""Nodes without the label of a topology key, as kube-scheduler treats them; found by comparing with the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from tests.unit.scheduling.conftest import Decide

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RACK = "example.com/rack"
ZONE = "topology.kubernetes.io/zone"


def node_without_zone(clusters: ModuleType, name: str) -> dict[str, Any]:
    node: dict[str, Any] = clusters.node(name)
    del node["metadata"]["labels"][ZONE]
    return node


def anti_affinity(key: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {REQUIRED: [term]}}


@pytest.mark.parametrize("key", [RACK, ZONE])
def test_anti_affinity_excludes_nothing_on_a_node_without_its_label(
    decide: Decide, clusters: ModuleType, key: str
) -> None:
    node = node_without_zone(clusters, "bare")
    pods = clusters.pods("web", 3, affinity=anti_affinity(key, "web"))

    decision = decide({"objects": [node, *pods], "instanceTypes": []})

    assert [len(on_node) for on_node in decision["existingNodes"].values()] == [3]
    assert not decision["errors"]


def test_new_nodes_without_the_label_of_an_anti_affinity_take_as_many_pods_as_fit(
    decide: Decide, clusters: ModuleType
) -> None:
    pods = clusters.pods("web", 5, cpu="100m", memory="64Mi", affinity=anti_affinity(RACK, "web"))

    decision = decide({"objects": [clusters.pool(), *pods], "instanceTypes": clusters.TYPES})

    assert [len(claim["pods"]) for claim in decision["nodeClaims"]] == [5]


def test_pods_that_another_rule_counts_may_go_where_its_label_is_missing(decide: Decide, clusters: ModuleType) -> None:
    labeled = clusters.node("labeled", cpu=1, labels={RACK: "r1"})
    bare = clusters.node("bare", cpu=4)
    spread = {
        "topologyKey": RACK,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "plain"}},
    }
    counting = clusters.pods("counting", 1, cpu="100m", topologySpreadConstraints=[spread])
    plain = clusters.pods("plain", 4, cpu="700m")

    decision = decide({"objects": [labeled, bare, *counting, *plain], "instanceTypes": []})

    assert not decision["errors"]
    on_bare = [pod for pod in decision["existingNodes"]["bare"] if "plain" in pod]
    assert len(on_bare) >= 3  # the labeled node has room for one


def test_a_spread_without_a_selector_still_needs_its_label(decide: Decide, clusters: ModuleType) -> None:
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    pods = clusters.pods("web", 1, topologySpreadConstraints=[spread])

    refused = decide({"objects": [node_without_zone(clusters, "bare"), *pods], "instanceTypes": []})
    placed = decide({"objects": [clusters.node("labeled"), *pods], "instanceTypes": []})

    assert set(refused["errors"]) == {"default/web-0000"}
    assert placed["existingNodes"] == {"labeled": ["default/web-0000"]}
