"""Preferences for different hosts: they leave no pod out, bind no other pod, and buy no node for each replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

HOST = "kubernetes.io/hostname"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


def anyway(app: str, *, key: str = HOST, max_skew: int = 1) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {
        "topologySpreadConstraints": [
            {
                "labelSelector": selector,
                "maxSkew": max_skew,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ]
    }


def preferred_anti_affinity(*apps: str) -> dict[str, Any]:
    terms = [
        {
            "weight": 100 - i,
            "podAffinityTerm": {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}},
        }
        for i, app in enumerate(apps)
    ]
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def limited(clusters: ModuleType, types: list[str], **limits: object) -> dict[str, Any]:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
    ]
    pool: dict[str, Any] = clusters.pool("small", requirements=requirements, limits=limits)
    return pool


def running(pods: list[dict[str, Any]], node: str) -> list[dict[str, Any]]:
    return [{**p, "spec": {**p["spec"], "nodeName": node}, "status": {"phase": "Running"}} for p in pods]


def sizes(decision: dict[str, Any]) -> list[int]:
    return sorted(len(claim["pods"]) for claim in decision["nodeClaims"])


@pytest.mark.parametrize("rule", [anyway("api"), preferred_anti_affinity("api")], ids=["spread", "anti-affinity"])
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_all_pods_are_planned_evenly_in_a_pool_with_fewer_nodes_than_pods(
    decide: Decide, clusters: ModuleType, rule: dict[str, Any], nodes: int
) -> None:
    pool = limited(clusters, ["m1.large"], nodes=str(nodes))
    decision = decide(clusters.document(pool, clusters.pods("api", 8, cpu="100m", memory="64Mi", **rule)))
    assert decision["errors"] == {}
    assert sizes(decision) == ([8] if nodes == 1 else [4, 4])


@pytest.mark.parametrize("rule", [anyway("api"), preferred_anti_affinity("api")], ids=["spread", "anti-affinity"])
def test_nodes_that_a_preference_wants_use_up_no_limit_that_runs_all_pods(
    decide: Decide, clusters: ModuleType, rule: dict[str, Any]
) -> None:
    # one 16 CPU node runs all fourteen; two of eight run seven each, smaller ones fewer
    pool = limited(clusters, ["m1.large", "m1.xlarge", "m1.4xlarge"], cpu="16")
    decision = decide(clusters.document(pool, clusters.pods("api", 14, cpu="1", memory="1Gi", **rule)))
    assert decision["errors"] == {}
    assert sizes(decision) == [14]


def test_a_pod_without_rules_goes_to_a_node_whose_pods_prefer_to_be_away_from_it(
    decide: Decide, clusters: ModuleType
) -> None:
    shy = running(clusters.pods("shy", 1, **preferred_anti_affinity("plain", "shy")), "n-1")
    decision = decide(clusters.document(clusters.node("n-1", cpu=8), shy, clusters.pods("plain", 3)))
    assert decision["existingNodes"] == {"n-1": [f"default/plain-{i:04d}" for i in range(3)]}


def test_pending_pods_without_rules_share_a_new_node_with_pods_that_prefer_to_be_away_from_them(
    decide: Decide, clusters: ModuleType
) -> None:
    pool = limited(clusters, ["m1.xlarge"], nodes="1")
    shy = clusters.pods("shy", 1, cpu="300m", **preferred_anti_affinity("plain"))
    decision = decide(clusters.document(pool, shy, clusters.pods("plain", 4, cpu="300m")))
    assert decision["errors"] == {}
    assert sizes(decision) == [5]


def test_required_anti_affinity_still_binds_other_pods(decide: Decide, clusters: ModuleType) -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "plain"}}}
    rule = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    pool = limited(clusters, ["m1.xlarge"], nodes="1")
    decision = decide(
        clusters.document(pool, clusters.pods("guarded", 1, cpu="300m", **rule), clusters.pods("plain", 2, cpu="300m"))
    )
    assert len(decision["errors"]) in {1, 2}
    assert all(len({p.rpartition("-")[0] for p in c["pods"]}) == 1 for c in decision["nodeClaims"])


@pytest.mark.parametrize("count", [2, 7, 40])
def test_replicas_share_nodes_but_none_runs_more_than_half_of_them(
    decide: Decide, clusters: ModuleType, count: int
) -> None:
    pool = limited(clusters, ["c1.xlarge", "c1.2xlarge", "c1.4xlarge"])
    plain = decide(clusters.document(pool, clusters.pods("api", count)))
    apart = decide(clusters.document(pool, clusters.pods("api", count, **anyway("api"))))
    assert apart["errors"] == {}
    assert max(sizes(apart)) <= -(-count // 2)
    assert len(apart["nodeClaims"]) <= max(2, len(plain["nodeClaims"]) + 1)


def test_replicas_have_a_node_each_where_that_costs_no_more(decide: Decide, clusters: ModuleType) -> None:
    pool = limited(clusters, ["c1.large", "c1.xlarge", "c1.2xlarge"])
    decision = decide(clusters.document(pool, clusters.pods("api", 6, cpu="1800m", **preferred_anti_affinity("api"))))
    assert sizes(decision) == [1] * 6


def test_hosts_and_zones_that_pods_prefer_to_spread_over_need_few_nodes_in_every_zone(
    decide: Decide, clusters: ModuleType
) -> None:
    both = [anyway("api", key=key)["topologySpreadConstraints"][0] for key in (HOST, "topology.kubernetes.io/zone")]
    pool = limited(clusters, ["c1.xlarge", "c1.2xlarge", "c1.4xlarge"])
    decision = decide(clusters.document(pool, clusters.pods("api", 36, topologySpreadConstraints=both)))
    zones = Counter(c["cheapest"]["zone"] for c in decision["nodeClaims"] for _ in c["pods"])
    assert sorted(zones.values()) == [12, 12, 12]
    assert len(decision["nodeClaims"]) <= 6


def test_pods_of_a_leaving_node_move_to_a_node_that_runs_others_of_them(decide: Decide, clusters: ModuleType) -> None:
    pool = limited(clusters, ["m1.xlarge"], nodes="1")
    labels = {"karpenter.sh/nodepool": "small", "karpenter.sh/initialized": "true"}
    nodes = [clusters.node("n-1"), clusters.node("n-2", labels=labels)]
    api = clusters.pods("api", 4, cpu="300m", **preferred_anti_affinity("api"))
    decision = decide(clusters.document(pool, nodes, running(api[:3], "n-1"), api[3:]))
    assert decision["errors"] == {}
    assert decision["nodeClaims"] == []
