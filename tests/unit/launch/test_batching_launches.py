"""NodeClaims that nearly agree are launched together, at a bounded cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import ObjectMeta
from shared.api.nodepool import NodePool, NodePoolSpec
from shared.base.struct import with_fields
from shared.instance_types.instance_type import InstanceType
from shared.launch.fleet.batching import (
    FEW_CALLS,
    MAX_COST,
    exceed_cluster_limits,
    merge_launch_groups,
    pools_past_limits,
)
from shared.scheduling.decision import CheapestOffering, PlannedNodeClaim

SIZES = [2**n for n in range(1, 7)]
TYPES = {f"m5.{cpus}": cpus for cpus in SIZES}


def claim(cpu: int, *, zone: str = "a", pool: str = "default", at: int = 0) -> PlannedNodeClaim:
    """A claim for that many cores: any type that has them, the smallest first; a core costs 1 $/h."""
    fitting = tuple(name for name, cpus in TYPES.items() if cpus >= cpu)
    return PlannedNodeClaim(
        node_pool=pool,
        pods=(f"default/web-{cpu}-{at}",),
        instance_types=fitting,
        requirements=(
            NodeSelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=[zone]),
            NodeSelectorRequirement(key="node.kubernetes.io/instance-type", operator="In", values=list(fitting)),
        ),
        requests={"cpu": cpu, "pods": 1},
        labels={},
        taints=(),
        cheapest=CheapestOffering(
            instance_type=fitting[0], zone=zone, capacity_type="spot", price=float(TYPES[fitting[0]])
        ),
    )


def groups(claims: tuple[PlannedNodeClaim, ...]) -> int:
    return len({(c.instance_types, str(c.requirements)) for c in claims})


def price(claims: tuple[PlannedNodeClaim, ...]) -> float:
    return sum(c.cheapest.price for c in claims)


def test_a_different_node_at_the_end_of_many_is_launched_with_them() -> None:
    planned = (*(claim(64, at=i) for i in range(20)), claim(32), claim(16), claim(8), claim(2))
    merged = merge_launch_groups(planned)
    assert groups(planned) == 5
    assert groups(merged) == FEW_CALLS
    assert price(merged) - price(planned) == 6  # the machine of 2 cores has become one of 8


def of_types(*types: str, cpu: int, memory: int, least: int | None = None) -> PlannedNodeClaim:
    """A claim that may be any of the types; 40 others are added, on which all such claims agree."""
    names = (*types, *(f"r5.{n}" for n in range(40)))
    return with_fields(
        claim(64),
        instance_types=names,
        requirements=(
            NodeSelectorRequirement(
                key="node.kubernetes.io/instance-type", operator="In", values=list(names), min_values=least
            ),
        ),
        requests={"cpu": cpu, "memory": memory},
        cheapest=CheapestOffering(instance_type=types[0], zone="a", capacity_type="spot", price=1.0),
    )


def test_claims_that_differ_only_in_some_types_are_launched_together() -> None:
    planned = (of_types("c5", "c6", cpu=8, memory=1), of_types("c5", "m5", cpu=4, memory=2))
    merged = merge_launch_groups(planned)
    assert groups(merged) == 1
    assert merged[0].instance_types == ("c5", *planned[0].instance_types[2:])
    assert merged[0].requirements[0].values == list(merged[0].instance_types)
    assert [(c.requests, c.pods, c.cheapest) for c in merged] == [(c.requests, c.pods, c.cheapest) for c in planned]


def test_claims_with_few_common_types_or_min_values_are_not_merged() -> None:
    many = tuple(f"m5.{n}" for n in range(20))
    apart = (of_types("c5", cpu=8, memory=1), of_types("c5", *many, cpu=4, memory=2))
    bound = (of_types("c5", "c6", cpu=8, memory=1, least=42), of_types("c5", "m5", cpu=4, memory=2, least=42))
    costlier = (of_types("c5", "c6", cpu=8, memory=1), of_types("c6", cpu=4, memory=2))
    for planned in (apart, bound, costlier):
        assert merge_launch_groups(planned) == planned


def test_few_launches_are_not_changed() -> None:
    planned = (claim(64), claim(16), claim(2))
    assert merge_launch_groups(planned) == planned


def test_merges_that_cost_too_much_are_not_made() -> None:
    planned = (claim(64), claim(32), claim(16), claim(8))
    assert merge_launch_groups(planned) == planned


def test_claims_that_differ_in_more_than_types_are_never_merged() -> None:
    planned = (*(claim(64, at=i) for i in range(50)), *(claim(2, zone=zone) for zone in "bcde"))
    assert merge_launch_groups(planned) == planned


def test_claims_of_a_pool_near_its_limits_stay_as_planned() -> None:
    planned = (*(claim(64, at=i) for i in range(10)), claim(16), claim(8), claim(2))
    types = [InstanceType(name=n, labels={}, capacity={"cpu": c}, overhead={}, offerings=()) for n, c in TYPES.items()]
    largest = 13 * 64  # each claim may become the largest type
    for held, near in ((1000 - largest, set()), (1001 - largest, {"default"})):
        pools = [NodePool(metadata=ObjectMeta(name="default"), spec=NodePoolSpec(limits={"cpu": "1"}))]
        past_limits = pools_past_limits(
            planned, pools, held={"default": {"cpu": held}}, instance_types={"default": types}
        )
        assert past_limits == near
    assert merge_launch_groups(planned, limited={"default"}) == planned


@pytest.mark.parametrize(("limit", "exceeds"), [(1000, False), (999, True)])
def test_limits_over_all_nodepools_count_each_claim_as_its_largest_type(limit: int, *, exceeds: bool) -> None:
    planned = tuple(claim(cpu, at=i) for i, cpu in enumerate((64, 16)))
    types = [InstanceType(name=n, labels={}, capacity={"cpu": c}, overhead={}, offerings=()) for n, c in TYPES.items()]
    held = {"default": {"cpu": 72}, "other": {"cpu": 800}}
    assert exceed_cluster_limits(planned, {"cpu": limit}, held=held, instance_types={"default": types}) == exceeds


@given(st.lists(st.tuples(st.integers(1, 64), st.sampled_from("ab")), max_size=40))
def test_every_claim_keeps_its_pods_and_gets_types_that_hold_them_at_a_bounded_price(
    cpus_and_zones: list[tuple[int, str]],
) -> None:
    planned = tuple(claim(cpu, zone=zone, at=i) for i, (cpu, zone) in enumerate(cpus_and_zones))
    merged = merge_launch_groups(planned)
    assert [c.pods for c in merged] == [c.pods for c in planned]
    for before, after in zip(planned, merged, strict=True):
        assert after.requests == before.requests
        assert after.requirements[0] == before.requirements[0]
        assert all(TYPES[name] >= before.requests["cpu"] for name in after.instance_types)
    assert groups(merged) <= groups(planned)
    assert price(merged) <= price(planned) * (1 + MAX_COST) + 1e-9
    if groups(planned) <= FEW_CALLS:
        assert groups(merged) == groups(planned)
