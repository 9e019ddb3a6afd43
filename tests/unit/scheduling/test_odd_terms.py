"""Affinity terms that are accepted by the API server though they are odd; found by comparing with kube-scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from tests.unit.scheduling.conftest import Decide

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"


def compared(value: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "generation", "operator": "Gt", "values": [value]}]}


def test_a_term_whose_bound_is_no_integer_matches_nothing_and_the_others_stand(
    decide: Decide, clusters: ModuleType
) -> None:
    node = clusters.node("new", labels={"generation": "7"})
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [compared("many"), {}, compared("6")]}}}

    decision = decide({"objects": [node, *clusters.pods("web", 1, affinity=affinity)], "instanceTypes": []})

    assert decision["existingNodes"] == {"new": ["default/web-0000"]}


def test_a_pod_all_of_whose_terms_have_such_a_bound_is_told_so(decide: Decide, clusters: ModuleType) -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [compared("many")]}}}

    decision = decide(
        {"objects": [clusters.node("new"), *clusters.pods("web", 1, affinity=affinity)], "instanceTypes": []}
    )

    assert "generation Gt needs one integer" in str(decision["errors"]["default/web-0000"])


def test_a_preferred_term_with_such_a_bound_is_no_preference(decide: Decide, clusters: ModuleType) -> None:
    affinity = {"nodeAffinity": {PREFERRED: [{"weight": 9, "preference": compared("many")}]}}

    decision = decide(
        {"objects": [clusters.node("new"), *clusters.pods("web", 1, affinity=affinity)], "instanceTypes": []}
    )

    assert decision["existingNodes"] == {"new": ["default/web-0000"]}


def bound(clusters: ModuleType, name: str, **labels: str) -> dict[str, Any]:
    (pod,) = clusters.pods(name, 1, cpu="10m", nodeName="here")
    pod["metadata"]["labels"] = labels
    pod["status"] = {"phase": "Running"}
    result: dict[str, Any] = pod
    return result


def test_one_pod_must_match_all_terms_of_an_affinity(decide: Decide, clusters: ModuleType) -> None:
    terms = [
        {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "cache"}}},
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"tier": "fast"}}},
    ]
    pods = clusters.pods("web", 1, affinity={"podAffinity": {REQUIRED: terms}})
    apart = [bound(clusters, "one", app="cache"), bound(clusters, "two", tier="fast")]
    together = [bound(clusters, "both", app="cache", tier="fast")]

    refused = decide({"objects": [clusters.node("here"), *apart, *pods], "instanceTypes": []})
    placed = decide({"objects": [clusters.node("here"), *together, *pods], "instanceTypes": []})

    assert set(refused["errors"]) == {"default/web-0000"}
    assert placed["existingNodes"] == {"here": ["default/web-0000"]}


def test_replicas_that_share_a_host_go_to_an_existing_node_where_nothing_can_be_launched(
    decide: Decide, clusters: ModuleType
) -> None:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    pods = clusters.pods("web", 3, cpu="100m", affinity={"podAffinity": {REQUIRED: [term]}})

    decision = decide({"objects": [clusters.node("here"), *pods], "instanceTypes": []})

    assert {name: len(on_node) for name, on_node in decision["existingNodes"].items()} == {"here": 3}
