"""A NodePool's spot diversity: its NodeClaims list at least that many instance types, after consolidation too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bench import consolidation as sample
from shared.api import labels
from shared.api.kubernetes import NodeSelectorRequirement
from shared.base.struct import with_fields
from shared.disruption.price_filter import filter_by_price
from shared.launch.fleet.batching import merge_launch_groups
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool
    from shared.scheduling.decision import Decision

NOW = datetime(2026, 11, 24, tzinfo=UTC)
TYPES = sample.instance_types()
LARGE = (30_000, 16 * 1024)
"""Requests that only the five types of 32 CPUs hold."""


def pool(diversity: str, *requirements: NodeSelectorRequirement) -> NodePool:
    base = sample.pool()
    template = base.spec.template
    limited = with_fields(template, spec=with_fields(template.spec, requirements=list(requirements)))
    annotated = with_fields(base.metadata, annotations={labels.SPOT_DIVERSITY: diversity})
    return with_fields(base, metadata=annotated, spec=with_fields(base.spec, template=limited))


def decide(node_pool: NodePool, *sizes: tuple[int, int]) -> Decision:
    pods = tuple(sample.pod(f"web-{i}", size) for i, size in enumerate(sizes))
    snapshot = Snapshot(taken_at=NOW, pods=pods, node_pools=(node_pool,))
    return schedule(Problem(snapshot=snapshot, instance_types={node_pool.name: TYPES}))


def test_nodes_are_packed_so_that_enough_types_hold_them() -> None:
    sizes = [(1000, 1024)] * 28
    assert min(len(c.instance_types) for c in decide(pool("1"), *sizes).new_node_claims) < 15
    diverse = decide(pool("15"), *sizes)
    assert not diverse.pod_errors
    assert all(len(c.instance_types) >= 15 for c in diverse.new_node_claims)


def test_a_pod_that_too_few_types_hold_is_unschedulable() -> None:
    assert not decide(pool("5"), LARGE).pod_errors
    (error,) = decide(pool("6"), LARGE).pod_errors.values()
    assert f"annotation {labels.SPOT_DIVERSITY} not met" in error.message
    assert "requires 6 values, instance types for the pod have 5" in error.message


def test_the_nodeclaim_states_the_min_values_of_the_requirements_only() -> None:
    stated = NodeSelectorRequirement(key=labels.INSTANCE_TYPE, operator="Exists", values=[], min_values=3)
    for node_pool, expected in ((pool("5"), None), (pool("5", stated), 3)):
        (claim,) = decide(node_pool, LARGE).new_node_claims
        (requirement,) = (r for r in claim.requirements if r.key == labels.INSTANCE_TYPE)
        assert requirement.min_values == expected


def test_an_invalid_diversity_counts_as_none() -> None:
    assert not decide(pool("many"), LARGE).pod_errors


def test_consolidation_keeps_as_many_types() -> None:
    (claim,) = decide(pool("10"), (1000, 1024)).new_node_claims
    prices = sorted({o.price for t in TYPES if t.name in claim.instance_types for o in t.offerings})
    enough = [p for p in prices if sum(min(o.price for o in t.offerings) <= p for t in TYPES) >= 10]
    filtered = filter_by_price(claim, TYPES, enough[0])
    assert filtered is not None
    assert len(filtered.instance_types) >= 10
    assert filter_by_price(claim, TYPES, prices[0]) is None
    assert filter_by_price(with_fields(claim, min_types=0), TYPES, prices[0]) is not None


def test_launches_are_merged_only_if_enough_types_are_common() -> None:
    (claim,) = decide(pool("1"), (1000, 1024)).new_node_claims
    fewer = with_fields(claim, instance_types=claim.instance_types[:-1], pods=("default/x",))
    assert len({c.instance_types for c in merge_launch_groups((claim, fewer))}) == 1
    least = len(claim.instance_types)
    separate = merge_launch_groups((with_fields(claim, min_types=least), with_fields(fewer, min_types=least)))
    assert len({c.instance_types for c in separate}) == 2
