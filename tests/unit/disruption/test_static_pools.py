"""A static pool has exactly ``replicas`` nodes, whatever pods there are."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.hash import NODEPOOL_HASH_VERSION, hash_node_pool
from shared.api.kubernetes import NodeSelectorRequirement, PodStatus
from shared.api.meta import Condition, with_condition
from shared.api.nodeclaim import INITIALIZED, NodeClaimSpec
from shared.api.nodepool import Budget, TemplateMetadata
from shared.base.struct import with_fields
from shared.disruption import consolidation, disruption_queue, drift, emptiness, expiration, static_disruption
from shared.disruption.command import SURPLUS
from shared.scheduling import static_pools
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.disruption.command import MethodResult
    from shared.scheduling.decision import PlannedNodeClaim
    from tests.unit.disruption.conftest import Cluster


@pytest.fixture
def pool(cluster: Cluster) -> Cluster:
    """A cluster whose pool has three nodes."""
    return fixed(cluster, 3)


def fixed(cluster: Cluster, replicas: int, **spec: Any) -> Cluster:
    cluster.pool = with_fields(cluster.pool, spec=with_fields(cluster.pool.spec, replicas=replicas, **spec))
    return cluster


def compute(cluster: Cluster) -> MethodResult:
    return static_disruption.compute(cluster.state(), cluster.budget_tracker())


def missing(cluster: Cluster) -> tuple[tuple[PlannedNodeClaim, ...], str]:
    planned, lacks = static_pools.missing_replicas(
        cluster.snapshot, {"default": cluster.types}, {}, disruption_queue.replaced_claims(cluster.claims)
    )
    return planned, lacks.get("default", "")


def outdated(cluster: Cluster) -> None:
    """Change the template, so that all nodes have drifted."""
    stamp = {names.NODEPOOL_HASH: hash_node_pool(cluster.pool), names.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION}
    cluster.claims = [with_fields(c, metadata=with_fields(c.metadata, annotations=stamp)) for c in cluster.claims]
    template = with_fields(cluster.pool.spec.template, metadata=TemplateMetadata(labels={"team": "x"}))
    cluster.pool = with_fields(cluster.pool, spec=with_fields(cluster.pool.spec, template=template))


def test_missing_replicas_are_planned_cheapest_first_regardless_of_pods(pool: Cluster) -> None:
    planned, lack = missing(pool)
    assert [c.cheapest.instance_type for c in planned] == ["m.1x"] * 3
    assert lack == ""
    pool.node("n", 8)
    pool.pod("p", "n")
    assert len(missing(pool)[0]) == 2
    for name in "ab":
        pool.node(name, 1)
    assert missing(pool)[0] == ()


def test_its_requirements_and_limits_hold_and_missing_replicas_are_reported(cluster: Cluster) -> None:
    fixed(cluster, 3, limits={"nodes": "2"})
    large = NodeSelectorRequirement(key=names.INSTANCE_TYPE, operator="In", values=["m.4x"])
    spec = with_fields(cluster.pool.spec.template.spec, requirements=[large])
    cluster.pool = with_fields(
        cluster.pool, spec=with_fields(cluster.pool.spec, template=with_fields(cluster.pool.spec.template, spec=spec))
    )
    planned, lack = missing(cluster)
    assert [c.instance_types for c in planned] == [("m.4x",)] * 2
    assert "1 of 3 replicas" in lack
    assert "nodes 0 left" in lack


def test_two_static_pools_keep_to_the_limits_over_all_nodepools_in_one_round(cluster: Cluster) -> None:
    fixed(cluster, 2)
    second = with_fields(cluster.pool, metadata=with_fields(cluster.pool.metadata, name="second"))
    snapshot = with_fields(cluster.snapshot, node_pools=(cluster.pool, second), cluster_limits={"nodes": 3})
    types = {"default": cluster.types, "second": cluster.types}
    planned, lacks = static_pools.missing_replicas(snapshot, types, {}, ())
    assert [c.node_pool for c in planned] == ["default", "default", "second"]
    assert "the limits of all NodePools together: nodes 0 left" in lacks["second"]


def test_pods_are_scheduled_on_its_nodes_but_never_scale_it_up(cluster: Cluster) -> None:
    fixed(cluster, 1)
    cluster.node("n", 4)
    cluster.pod("a", "", 3000)
    cluster.pod("b", "", 3000)
    unplaced = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    cluster.pods = [with_fields(p, status=PodStatus(phase="Pending", conditions=[unplaced])) for p in cluster.pods]
    decision = schedule(Problem(snapshot=cluster.snapshot, instance_types={"default": cluster.types}))
    assert len(decision.existing_nodes["n"]) == 1
    assert decision.new_node_claims == ()
    assert "static" in next(iter(decision.pod_errors.values())).message


def test_its_nodes_are_neither_empty_nor_underutilized(pool: Cluster) -> None:
    for name in "abc":
        pool.node(name, 8)
    pool.claims = [
        emptiness.with_empty_condition(c, is_empty=True, now=pool.state().now - timedelta(hours=1)) for c in pool.claims
    ]
    assert emptiness.find_candidates(pool.state()) == ()
    assert consolidation.find_candidates(pool.state()) == ()
    assert compute(pool).commands == ()


def test_scale_down_removes_the_nodes_with_the_lowest_disruption_cost(cluster: Cluster) -> None:
    fixed(cluster, 4)
    for name in "abcd":
        cluster.node(name, 4)
    for name, count in (("a", 2), ("b", 1), ("d", 3)):
        for i in range(count):
            cluster.pod(f"{name}{i}", name, 100)
    fixed(cluster, 2)
    (action,) = compute(cluster).commands
    assert action.reason == SURPLUS
    assert action.nodes == ("c", "b")
    assert action.replacements == ()


def test_scale_down_removes_empty_nodes_first_and_protected_ones_last(cluster: Cluster) -> None:
    fixed(cluster, 1)
    for name in ("cheap", "empty", "other", "protected"):
        cluster.node(name, 4)
    cluster.pod("c", "cheap", 100, annotations={names.POD_DELETION_COST: str(-(2**31) + 1)})
    for i in range(2):
        cluster.pod(f"o{i}", "other", 100, owned=False)
    cluster.pod("p", "protected", 100, annotations={names.DO_NOT_DISRUPT: "true"})
    (command,) = compute(cluster).commands
    assert command.nodes == ("empty", "cheap", "other")
    assert compute(cluster).blocked == ()


def test_scale_down_removes_claims_without_a_node_first(cluster: Cluster) -> None:
    fixed(cluster, 1)
    cluster.node("up", 1)
    cluster.node("coming", 1)
    coming = cluster.claims[1]
    conditions = with_condition(
        coming.status.conditions, INITIALIZED, status=None, reason="Launching", now=cluster.state().now, generation=1
    )
    cluster.claims[1] = with_fields(coming, status=with_fields(coming.status, conditions=conditions, node_name=""))
    cluster.nodes.pop()
    (action,) = compute(cluster).commands
    assert [r.claim for r in action.removals] == ["claim-coming"]
    assert action.forced


def test_scale_down_respects_budgets_and_do_not_disrupt(cluster: Cluster) -> None:
    fixed(cluster, 0, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="1")]))
    for name in "abc":
        cluster.node(name, 1)
    cluster.nodes[0] = with_fields(
        cluster.nodes[0],
        metadata=with_fields(cluster.nodes[0].metadata, annotations={names.DO_NOT_DISRUPT: "true"}),
    )
    result = compute(cluster)
    assert [a.nodes for a in result.commands] == [("b",)]
    assert {r.node: r.blocker.by for r in result.blocked} == {"a": "Node a", "c": "NodePool default"}


def test_drifted_nodes_are_replaced_one_after_the_other(pool: Cluster) -> None:
    for i, name in enumerate("abc"):
        pool.node(name, 1, age=timedelta(hours=9 - i))
    outdated(pool)
    result = compute(pool)
    (action,) = result.commands
    assert action.nodes == ("a",)
    assert action.reason == drift.REASON
    assert len(action.replacements) == 1
    assert drift.compute(pool.state(), pool.budget_tracker()).commands == ()
    mark = disruption_queue.QueueEntry(id="1", reason="Drifted", since=pool.state().now, replacements=["claim-new"])
    pool.claims[0] = disruption_queue.with_queue_entry(pool.claims[0], mark)
    pool.node("new", 1)
    assert compute(pool).commands == ()
    assert missing(pool)[0] == ()


def test_a_queue_entry_with_a_missing_replacement_launches_nothing(pool: Cluster) -> None:
    for name in "abc":
        pool.node(name, 1)
    mark = disruption_queue.QueueEntry(id="1", reason="Drifted", since=pool.state().now, replacements=["claim-lost"])
    pool.claims[0] = disruption_queue.with_queue_entry(pool.claims[0], mark)
    assert missing(pool)[0] == ()


def test_an_expired_node_waits_for_its_budget_window_and_for_the_pool_limits(cluster: Cluster) -> None:
    fixed(cluster, 1, limits={"nodes": "1"})
    cluster.node("old", 1, spec=NodeClaimSpec(expire_after="5h"))
    assert expiration.compute(cluster.state(), cluster.budget_tracker()).commands == ()
    (refused,) = compute(cluster).blocked
    assert refused.reason == expiration.REASON
    assert "nodes 0 left" in refused.message
    closed = Budget(nodes="0", schedule="0 9 * * *", duration="8h")
    fixed(cluster, 1, limits={}, disruption=with_fields(cluster.pool.spec.disruption, budgets=[closed]))
    assert "budgets" in compute(cluster).blocked[0].message
    fixed(cluster, 1, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="1")]))
    assert [a.nodes for a in compute(cluster).commands] == [("old",)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    replicas=st.integers(0, 5),
    nodes=st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.integers(0, 3), st.booleans()), max_size=6),
    budget=st.sampled_from(("0", "1", "50%", "100%")),
)
def test_no_decision_leaves_fewer_nodes_than_replicas(
    make: Callable[[], Cluster], replicas: int, nodes: list[tuple[int, int, bool]], budget: str
) -> None:
    cluster = make()
    cluster.disruption(budgets=[Budget(nodes=budget)])
    fixed(cluster, replicas)
    for i, (cpu, pods, kept) in enumerate(nodes):
        cluster.node(f"n{i}", cpu, annotations={names.DO_NOT_DISRUPT: "true"} if kept else {})
        for k in range(pods):
            cluster.pod(f"p{i}-{k}", f"n{i}", 100)
    allowed = cluster.budget_tracker().remaining("default", SURPLUS)
    gone = {n for a in compute(cluster).commands for n in a.nodes}
    assert len(nodes) - len(gone) >= min(replicas, len(nodes))
    assert len(gone) <= allowed
    assert not gone & {f"n{i}" for i, (_, _, kept) in enumerate(nodes) if kept}
    assert len(missing(cluster)[0]) == max(0, replicas - len(nodes))
