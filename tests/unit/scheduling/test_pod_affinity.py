"""Pod affinity and anti-affinity between several groups of pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]
FAMILY = "karpenter.k8s.aws/instance-family"


def affinity_rule(kind: str, app: str, key: str, **more: object) -> Raw:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_a_stateful_set_with_host_affinity_shares_one_host_though_pod_labels_differ(
    decide: Decide, clusters: ModuleType
) -> None:
    pods = clusters.pods("db", 4, "1", "4Gi", **affinity_rule("podAffinity", "db", HOST))
    for pod in pods:
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = pod["metadata"]["name"]
    decision = decide(clusters.document(clusters.pool(), pods))
    assert [len(c["pods"]) for c in decision["nodeClaims"]] == [4]


def test_anti_affinity_of_a_running_pod_excludes_its_zone(decide: Decide, clusters: ModuleType) -> None:
    guard = clusters.pods("guard", 1, "100m", "128Mi", **affinity_rule("podAntiAffinity", "q", ZONE))
    guard[0]["spec"]["nodeName"] = "old"
    decision = decide(
        clusters.document(
            clusters.pool(),
            clusters.node("old", zone="z-a"),
            guard,
            clusters.pods("q", 3, **affinity_rule("podAntiAffinity", "q", ZONE)),
        )
    )
    assert {c["cheapest"]["zone"] for c in decision["nodeClaims"]} == {"z-b", "z-c"}
    assert len(decision["errors"]) == 1


def test_a_relaxed_preferred_anti_affinity_excludes_no_other_pod(decide: Decide, clusters: ModuleType) -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "w"}}}
    preference = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    }
    decision = decide(clusters.document(clusters.pool(), clusters.pods("w", 5, affinity=preference)))
    assert not decision["errors"]
    assert {c["cheapest"]["zone"] for c in decision["nodeClaims"]} == {"z-a", "z-b", "z-c"}


def test_pods_whose_affinity_target_runs_on_no_suitable_node_are_unschedulable(
    decide: Decide, clusters: ModuleType
) -> None:
    leader = clusters.pods("leader", 1, "7", "8Gi")
    rule = affinity_rule("podAffinity", "leader", HOST)
    rule["nodeSelector"] = {"node.kubernetes.io/instance-type": "c1.large"}
    decision = decide(clusters.document(clusters.pool(), leader, clusters.pods("f", 2, "0", "0", **rule)))
    assert sorted(decision["errors"]) == ["default/f-0000", "default/f-0001"]
    assert [c["pods"] for c in decision["nodeClaims"]] == [["default/leader-0000"]]


def test_min_values_hold_on_nodes_of_pods_with_host_anti_affinity(decide: Decide, clusters: ModuleType) -> None:
    many = [{"key": FAMILY, "operator": "Exists", "minValues": 2}]
    pods = clusters.pods(
        "a", 4, nodeSelector={"kubernetes.io/arch": "arm64"}, **affinity_rule("podAntiAffinity", "a", HOST)
    )
    alone = decide(clusters.document(clusters.pool(requirements=many), pods))
    assert len(alone["errors"]) == 4  # arm64 has one family here
    pods = clusters.pods("a", 4, **affinity_rule("podAntiAffinity", "a", HOST))
    both = decide(clusters.document(clusters.pool(requirements=many), pods, clusters.pods("b", 8)))
    assert not both["errors"]
    assert all(len({t.partition(".")[0] for t in c["instanceTypes"]}) > 1 for c in both["nodeClaims"])


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"team": "blue"}}])
def test_an_affinity_selects_namespaces_by_their_labels(decide: Decide, clusters: ModuleType, selector: Raw) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue", "labels": {"team": "blue"}}}
    leader = clusters.pods("leader", 1, nodeSelector={ZONE: "z-c"})
    leader[0]["metadata"]["namespace"] = "blue"
    follower = clusters.pods("f", 3, **affinity_rule("podAffinity", "leader", ZONE, namespaceSelector=selector))
    decision = decide(clusters.document(clusters.pool(), space, leader, follower))
    assert not decision["errors"]
    assert {c["cheapest"]["zone"] for c in decision["nodeClaims"]} == {"z-c"}
    alone = decide(
        clusters.document(
            clusters.pool(), space, leader, clusters.pods("f", 3, **affinity_rule("podAffinity", "leader", ZONE))
        )
    )
    assert len(alone["errors"]) == 3


def test_pods_with_mutual_affinity_share_a_host_when_limits_require_first_fit(
    decide: Decide, clusters: ModuleType
) -> None:
    pods = clusters.pods("pair", 2, "3", "2Gi", **affinity_rule("podAffinity", "pair", HOST))
    for i, pod in enumerate(pods):
        pod["metadata"]["labels"]["version"] = str(i)
    ports = [{"containerPort": 80, "hostPort": 81}]
    alone = clusters.pods("alone", 2)
    for pod in alone:
        pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "ports": ports}]
    decision = decide(clusters.document(clusters.pool(limits={"memory": "40Gi"}), pods, alone))
    assert not decision["errors"]
    assert any({"default/pair-0000", "default/pair-0001"} <= set(c["pods"]) for c in decision["nodeClaims"])


@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c")])
def test_a_chain_of_host_affinities_ends_on_one_host_or_is_unschedulable(
    decide: Decide, clusters: ModuleType, names: tuple[str, str, str]
) -> None:
    first, second, third = names
    chain = [
        clusters.pods(second, 1, **affinity_rule("podAffinity", first, HOST)),
        clusters.pods(third, 1, **affinity_rule("podAffinity", second, HOST)),
    ]
    whole = decide(clusters.document(clusters.pool(), clusters.pods(first, 1), *chain))
    assert [len(c["pods"]) for c in whole["nodeClaims"]] == [3]
    headless = decide(clusters.document(clusters.pool(), *chain))
    assert not headless["nodeClaims"]
    assert len(headless["errors"]) == 2


def test_a_cycle_of_host_affinities_is_unschedulable(decide: Decide, clusters: ModuleType) -> None:
    pair = [
        clusters.pods("a", 1, **affinity_rule("podAffinity", "b", HOST)),
        clusters.pods("b", 1, **affinity_rule("podAffinity", "a", HOST)),
    ]
    decision = decide(clusters.document(clusters.pool(), *pair))
    assert not decision["nodeClaims"]
    assert len(decision["errors"]) == 2
