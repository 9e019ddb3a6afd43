"""Annotation ``tenon.sh/cluster-limits``: all NodePools together never exceed it, whatever EC2 launches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec
from shared.instance_types.instance_type import InstanceType
from shared.scheduling.state.cluster_usage import with_possible_capacity
from shared.scheduling.state.state_nodes import build_state_nodes
from shared.snapshot import Snapshot
from tests.scenarios import checker, simulation

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]

LIMITS = "tenon.sh/cluster-limits"


def pool(clusters: ModuleType, name: str, together: str = "", **spec: object) -> Raw:
    node_pool: Raw = clusters.pool(name, **spec)
    if together:
        node_pool["metadata"]["annotations"] = {LIMITS: together}
    return node_pool


def node_of(clusters: ModuleType, name: str, node_pool: str, *, cpu: int = 4) -> Raw:
    labels = {"karpenter.sh/nodepool": node_pool, "karpenter.sh/initialized": "true"}
    node: Raw = clusters.node(name, cpu=cpu, labels=labels)
    node["spec"]["taints"] = [{"key": "full", "effect": "NoSchedule"}]
    return node


def bound_to(clusters: ModuleType, app: str, count: int, **spec: object) -> list[Raw]:
    """Pods that need a node each."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods: list[Raw] = clusters.pods(app, count, affinity=apart, **spec)
    return pods


def test_a_burst_gets_as_many_nodes_as_the_limit_allows_over_all_nodepools(
    decide: Decide, clusters: ModuleType
) -> None:
    first = pool(clusters, "first", "nodes=3", labels={"for": "first"})
    second = pool(clusters, "second", labels={"for": "second"})
    pods = [
        *bound_to(clusters, "a", 5, nodeSelector={"for": "first"}),
        *bound_to(clusters, "b", 5, nodeSelector={"for": "second"}),
    ]
    decision = decide(clusters.document(first, second, pods))
    assert len(decision["nodeClaims"]) == 3
    assert len(decision["errors"]) == 7
    assert all("the limits of all NodePools together: nodes 0 left" in why for why in decision["errors"].values())


def test_nodes_of_other_nodepools_count(decide: Decide, clusters: ModuleType) -> None:
    nodes = [node_of(clusters, f"n{i}", "second") for i in range(2)]
    limited = pool(clusters, "first", "nodes=3")
    decision = decide(clusters.document(limited, pool(clusters, "second"), *nodes, bound_to(clusters, "a", 5)))
    assert len(decision["nodeClaims"]) == 1


def test_the_largest_instance_type_that_ec2_may_choose_keeps_to_the_limit(decide: Decide, clusters: ModuleType) -> None:
    document = clusters.document(
        pool(clusters, "first", "cpu=12", labels={"for": "first"}),
        pool(clusters, "second", labels={"for": "second"}),
        clusters.pods("a", 1, cpu="3", nodeSelector={"for": "first"}),
        clusters.pods("b", 1, cpu="3", nodeSelector={"for": "second"}),
    )
    decision = decide(document)
    assert not decision["errors"]
    cpus = {t["name"]: int(t["capacity"]["cpu"]) for t in document["instanceTypes"]}
    assert sum(max(cpus[t] for t in c["instanceTypes"]) for c in decision["nodeClaims"]) <= 12


def test_the_least_amount_of_several_annotations_holds(decide: Decide, clusters: ModuleType) -> None:
    pools = [pool(clusters, "first", "nodes=4, cpu=100"), pool(clusters, "second", "nodes=2")]
    assert len(decide(clusters.document(*pools, bound_to(clusters, "a", 5)))["nodeClaims"]) == 2


def test_a_nodepool_keeps_to_its_own_limits_too(decide: Decide, clusters: ModuleType) -> None:
    pools = [pool(clusters, "first", "nodes=4", limits={"nodes": "1"}), pool(clusters, "second")]
    decision = decide(clusters.document(*pools, bound_to(clusters, "a", 6)))
    assert len(decision["nodeClaims"]) == 4
    assert sum(c["nodePool"] == "first" for c in decision["nodeClaims"]) <= 1


def test_an_extended_resource_is_limited(decide: Decide, clusters: ModuleType) -> None:
    document = clusters.document(
        pool(clusters, "first", "example.com/gpu=2"),
        bound_to(clusters, "train", 3, nodeSelector={"gpu": "yes"}),
        pool(clusters, "gpu", labels={"gpu": "yes"}),
    )
    document["instanceTypes"] = [
        {**t, "capacity": {**t["capacity"], "example.com/gpu": "1"}} for t in document["instanceTypes"]
    ]
    decision = decide(document)
    assert len(decision["nodeClaims"]) == 2
    assert "the limits of all NodePools together: example.com/gpu 0 left" in decision["errors"]["default/train-0002"]


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ("cpus=10", '"cpus=10" is not a limit'),
        ("nodes", '"nodes" is not a limit'),
        ("cpu=many", 'cpu: "many" is not a quantity'),
        ("", "is empty"),
    ],
)
def test_a_nodepool_whose_annotation_is_wrong_launches_nothing(
    decide_unchecked: Decide, clusters: ModuleType, limits: str, problem: str
) -> None:
    broken = clusters.pool("default")
    broken["metadata"]["annotations"] = {LIMITS: limits}
    decision = decide_unchecked(clusters.document(broken, clusters.pods("a", 1)))
    assert problem in decision["errors"]["default/a-0000"]


def test_the_limits_of_a_nodepool_that_is_invalid_otherwise_still_hold(
    decide_unchecked: Decide, clusters: ModuleType
) -> None:
    broken = pool(clusters, "broken", "nodes=1", weight=1000)
    decision = decide_unchecked(clusters.document(broken, clusters.pool("works"), bound_to(clusters, "a", 3)))
    assert len(decision["nodeClaims"]) == 1


@st.composite
def limited_clusters(draw: st.DrawFn) -> tuple[Raw, ...]:
    """Pools with different limits, nodes that count against them, and more pods than fit."""
    amounts = st.sampled_from(("nodes=3", "cpu=14", "memory=40Gi", "cpu=30, nodes=5", "cpu=9, memory=20Gi"))
    own = st.sampled_from(({}, {}, {"limits": {"cpu": "8"}}, {"limits": {"nodes": "2"}}))
    weights = st.sampled_from(({}, {"weight": 10}))
    diverse = {"requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "Exists", "minValues": 2}]}
    shapes = [{**draw(own), **draw(weights), **draw(st.sampled_from(({}, {}, diverse)))} for _ in range(3)]
    return (
        {"limits": draw(amounts), "shapes": shapes, "nodes": draw(st.integers(0, 2))},
        {
            "apps": draw(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(("400m", "1500m", "3"))), min_size=1)),
            "apart": draw(st.booleans()),
        },
    )


@settings(max_examples=40)
@given(cluster=limited_clusters())
def test_no_decision_exceeds_the_limits(clusters: ModuleType, cluster: tuple[Raw, Raw]) -> None:
    nodepools, pods = cluster
    pools = [
        pool(clusters, f"p{i}", nodepools["limits"] if i == 1 else "", **s) for i, s in enumerate(nodepools["shapes"])
    ]
    nodes = [node_of(clusters, f"n{i}", f"p{i}") for i in range(nodepools["nodes"])]
    apps: list[Raw] = []
    for i, (count, cpu) in enumerate(pods["apps"][:4]):
        apps += bound_to(clusters, f"a{i}", count, cpu=cpu) if pods["apart"] else clusters.pods(f"a{i}", count, cpu=cpu)
    document = clusters.document(*pools, *nodes, apps)
    assert checker.check(document, simulation.decide(simulation.simulation_input(document))) == []


def test_a_nodeclaim_whose_nodepool_cannot_launch_now_counts_as_large_as_it_may_become() -> None:
    small, large = (
        InstanceType(name=n, labels={}, capacity={"cpu": c}, overhead={}, offerings=()) for n, c in (("s", 2), ("l", 8))
    )
    typed = NodeSelectorRequirement(key=names.INSTANCE_TYPE, operator="In", values=["s", "l"])
    waiting = NodeClaim(
        metadata=ObjectMeta(name="c", labels={names.NODEPOOL: "paused"}), spec=NodeClaimSpec(requirements=[typed])
    )
    snapshot = Snapshot(taken_at=datetime(2026, 5, 1, tzinfo=UTC), node_claims=(waiting,))
    types = {"works": (small, large)}
    usage = with_possible_capacity(build_state_nodes(snapshot, types, frozenset()), snapshot, types).usage
    assert usage == {"paused": {"cpu": 8}}
