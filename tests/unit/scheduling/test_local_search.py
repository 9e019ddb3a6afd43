"""Local search: small problems whose decisions were once more expensive than necessary, or depended on chance."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


def total(decision: dict[str, Any]) -> float:
    return float(sum(c["cheapest"]["price"] for c in decision["nodeClaims"]))


def of_types(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    return dict(raw, instanceTypes=[t for t in raw["instanceTypes"] if t["name"] in names])


def priced(raw: dict[str, Any], factor: float, *names: str) -> dict[str, Any]:
    """The problem with the prices of some types times a factor."""
    changed = copy.deepcopy(raw)
    for offering in [o for t in changed["instanceTypes"] if t["name"] in names for o in t["offerings"]]:
        offering["price"] = round(offering["price"] * factor, 6)
    return changed


def spread_rule(app: str, key: str = ZONE, **more: object) -> dict[str, Any]:
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": app}}}]}


def affinity_rule(kind: str, app: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def either(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [e]} for e in expressions]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


NOT_C1 = {"key": "karpenter.k8s.aws/instance-family", "operator": "NotIn", "values": ["c1"]}
AMD64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


def test_smaller_nodes_leave_capacity_within_a_limit_for_another_pod(decide: Decide, clusters: ModuleType) -> None:
    fat = clusters.pods("fat", 3, cpu="250m", memory="3Gi")
    big = clusters.pods("big", 2, cpu="7", memory="8Gi")
    raw = clusters.document(clusters.pool(limits={"memory": "40Gi"}), fat, big, clusters.pods("mid", 5))
    assert not decide(of_types(raw, "c1.large", "c1.4xlarge", "g1.xlarge"))["errors"]


def test_a_cheaper_instance_type_that_does_not_fit_does_not_decide_the_alternative(
    decide: Decide, clusters: ModuleType
) -> None:
    raw = clusters.document(clusters.pool(), clusters.pods("web", 1, cpu="3", memory="2Gi", **either(NOT_C1, AMD64)))
    decision = decide(priced(raw, 0.5, "g1.4xlarge"))
    assert total(decision) == pytest.approx(total(decide(raw))) == pytest.approx(0.064)


def test_groups_that_differ_only_in_labels_choose_the_same_alternative(decide: Decide, clusters: ModuleType) -> None:
    pods = clusters.pods("web", 2, cpu="1500m", memory="2Gi", **either(NOT_C1, AMD64))
    for i, pod in enumerate(pods):
        pod["metadata"]["labels"]["version"] = str(i)
    decision = decide(priced(clusters.document(clusters.pool(), pods), 0.5, "g1.4xlarge"))
    assert [(c["cheapest"]["instanceType"], len(c["pods"])) for c in decision["nodeClaims"]] == [("c1.xlarge", 2)]


def test_a_node_is_dropped_when_others_have_capacity_for_its_pods(decide: Decide, clusters: ModuleType) -> None:
    anti_affinity = affinity_rule("podAntiAffinity", "heavy", HOST)
    raw = clusters.document(
        clusters.pool(),
        clusters.pods("mid", 7),
        clusters.pods("fat", 2, cpu="250m", memory="3Gi", **spread_rule("fat", minDomains=3)),
        clusters.pods("heavy", 1, cpu="1", memory="6Gi", **anti_affinity),
        clusters.pods("busy", 3, cpu="3", memory="2Gi"),
        clusters.pods("tiny", 3, cpu="100m", memory="128Mi", **spread_rule("tiny", minDomains=2)),
    )
    raw = priced(of_types(raw, "c1.xlarge", "c1.4xlarge", "g1.large"), 0.9, "c1.4xlarge")
    assert total(decide(raw)) <= 0.2652


def test_equal_nodes_are_repacked_only_once(decide: Decide, clusters: ModuleType) -> None:
    busy = clusters.pods("busy", 4, cpu="3", memory="2Gi", **spread_rule("busy", HOST))
    web = clusters.pods("web", 6)
    for pod in web:
        pod["spec"]["containers"][0] = {
            **pod["spec"]["containers"][0],
            "ports": [{"containerPort": 80, "hostPort": 80}],
        }
    raw = clusters.document(clusters.pool(), busy, web, clusters.pods("heavy", 1, cpu="1", memory="6Gi"))
    assert total(decide(priced(raw, 0.5, "c1.4xlarge"))) <= total(decide(raw)) * 1.02


def test_host_affinity_groups_as_many_pods_as_spread_allows(decide: Decide, clusters: ModuleType) -> None:
    amd64 = {**NOT_C1, "operator": "In", "values": ["c1", "m1"]}
    small = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["c1.4xlarge", "m1.4xlarge"]}
    host_affinity = affinity_rule("podAffinity", "web", HOST) | spread_rule("web", maxSkew=5)
    web = clusters.pods("web", 6, cpu="1300m", memory="6656Mi", **host_affinity)
    raw = clusters.document(clusters.pool("small", requirements=[amd64, small]), clusters.pool("team"), web)
    decision = decide(priced(raw, 0.5, "m1.large"))
    assert [len(c["pods"]) for c in decision["nodeClaims"]] == [5]


@pytest.mark.parametrize("big_pods", range(6))
def test_of_equal_pods_the_last_by_name_are_left_out(decide: Decide, clusters: ModuleType, big_pods: int) -> None:
    kind = clusters.instance_type("p1.2xlarge", 8, 32, 1.2, "ab")
    kind["capacity"]["nvidia.com/gpu"] = "1"
    learn = clusters.pods("learn", 6, cpu="250m", memory="3Gi", **spread_rule("learn", maxSkew=2))
    for i, pod in enumerate(learn):
        pod["metadata"]["labels"]["version"] = str(i % 2)
        requests = {"cpu": "250m", "memory": "3Gi", "nvidia.com/gpu": "1"}
        pod["spec"]["containers"] = [{"name": "app", "resources": {"requests": requests}}]
    team = [{"key": "example.com/team", "operator": "In", "values": ["red", "blue"]}]
    big, tiny = (
        clusters.pods("big", big_pods, cpu="7", memory="8Gi"),
        clusters.pods("tiny", 3, cpu="100m", memory="128Mi"),
    )
    raw = of_types(clusters.document(clusters.pool(requirements=team), big, learn, tiny), "g1.2xlarge", "g1.4xlarge")
    raw["instanceTypes"] = [*raw["instanceTypes"], kind]
    assert sorted(decide(raw)["errors"]) == ["default/learn-0004", "default/learn-0005"]


def test_fewer_replicas_than_allowed_share_a_host_where_that_is_cheaper(decide: Decide, clusters: ModuleType) -> None:
    web = clusters.pods("web", 160, cpu="600m", memory="1Gi", **spread_rule("web", HOST, maxSkew=4))
    raw = of_types(clusters.document(clusters.pool(), web), "c1.large", "c1.xlarge", "m1.large")
    assert total(decide(priced(raw, 1.2, "c1.xlarge"))) == pytest.approx(54 * 0.032)


def test_pods_excluded_from_one_zone_by_running_pods_may_use_all_others(decide: Decide, clusters: ModuleType) -> None:
    guard = clusters.pods("guard", 1, cpu="100m", **affinity_rule("podAntiAffinity", "web", ZONE))
    guard[0]["spec"]["nodeName"] = "there"
    guard[0]["status"] = {"phase": "Running"}
    taints = [{"key": "k", "effect": "NoSchedule"}]
    pinned = clusters.pods("pinned", 1, cpu="3", memory="2Gi", nodeSelector={ZONE: "z-c"})
    web = clusters.pods("web", 1, cpu="500m", memory="1Gi")
    decision = decide(clusters.document(clusters.pool(), clusters.node("there", taints=taints), guard, pinned, web))
    assert [(c["cheapest"]["zone"], len(c["pods"])) for c in decision["nodeClaims"]] == [("z-c", 2)]
    alone = decide(clusters.document(clusters.pool(), clusters.node("there", taints=taints), guard, web))
    zones = next(r for r in alone["nodeClaims"][0]["requirements"] if r["key"] == ZONE)
    assert (zones["operator"], zones["values"]) in (("NotIn", ["z-a"]), ("In", ["z-b", "z-c"]))


def test_a_pod_with_affinity_to_two_groups_gets_no_node_without_both(decide: Decide, clusters: ModuleType) -> None:
    there = clusters.pods("db", 1, cpu="100m", nodeName="there")
    there[0]["status"] = {"phase": "Running"}
    both = affinity_rule("podAffinity", "db", HOST)
    (term,) = affinity_rule("podAffinity", "web", HOST)["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    both["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].append(term)
    web = clusters.pods("web", 1, cpu="3", memory="2Gi", **both)
    decision = decide(clusters.document(clusters.pool(), clusters.node("there", cpu=2), there, web))
    assert list(decision["errors"]) == ["default/web-0000"]
    assert not decision["nodeClaims"]
