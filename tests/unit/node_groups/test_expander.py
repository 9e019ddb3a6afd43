"""Cluster Autoscaler's expanders, as weights of groups."""

from __future__ import annotations

import pytest

from shared.node_groups.expander import parse_priorities, weights
from shared.node_groups.group_pools import GroupPool
from shared.node_groups.node_group import NodeGroup
from shared.node_groups.options import NodeGroupOptions
from shared.node_groups.template_node import TemplateNode
from shared.scheduling.decision import CheapestOffering, Decision, PlannedNodeClaim


def pool(name: str) -> GroupPool:
    node = TemplateNode(
        instance_type="m5.large", allocatable={"cpu": 2000, "memory": 8000}, labels={}, taints=(), price=0.1
    )
    return GroupPool(group=NodeGroup(name=name, minimum=0, maximum=9, desired=0), node=node)


def planned(of: GroupPool, *, pods: int, cpu: int) -> PlannedNodeClaim:
    return PlannedNodeClaim(
        node_pool=of.pool_name,
        pods=tuple(f"default/{i}" for i in range(pods)),
        instance_types=(),
        requirements=(),
        requests={"cpu": cpu, "memory": 4000},
        labels={},
        taints=(),
        cheapest=CheapestOffering(instance_type="m5.large", zone="", capacity_type="", price=0.1),
    )


A, B, C = pool("a"), pool("b"), pool("c")
ALONE = {
    "a": Decision(new_node_claims=(planned(A, pods=3, cpu=1000),)),
    "b": Decision(new_node_claims=(planned(B, pods=2, cpu=2000),)),
    "c": Decision(),
}


@pytest.mark.parametrize(
    ("expanders", "order"),
    [
        (("least-waste",), {"b": 1, "a": 0, "c": -1}),
        (("most-pods",), {"a": 1, "b": 0, "c": -1}),
        (("price",), {"a": 1, "b": 1, "c": 1}),
        (("priority", "most-pods"), {"b": 1, "a": 0, "c": -1}),
    ],
)
def test_the_best_group_weighs_as_much_as_a_node_pool(expanders: tuple[str, ...], order: dict[str, int]) -> None:
    priorities, problems = parse_priorities("10: ['.*']\n50: ['^b$']\n")
    assert problems == ()
    result = weights(
        (A, B, C),
        NodeGroupOptions(expander=expanders),
        alone=lambda pool: ALONE[pool.group.name],
        priorities=priorities,
    )
    assert result == order


@pytest.mark.parametrize(("prefer", "is_before"), [("node-groups", True), ("pools", False)])
def test_a_preference_puts_all_groups_before_or_after_node_pools(prefer: str, *, is_before: bool) -> None:
    result = weights(
        (A, B, C),
        NodeGroupOptions(expander=("most-pods",), prefer=prefer),
        alone=lambda pool: ALONE[pool.group.name],
    )
    assert all((weight > 100) == is_before and (weight < 1) != is_before for weight in result.values())


def test_priorities_that_cannot_be_read_are_problems() -> None:
    assert parse_priorities("- 10")[0] == ()
    priorities, (problem,) = parse_priorities("10: ['(', 'b']")
    assert [len(patterns) for _, patterns in priorities] == [1]
    assert '"("' in problem
    assert parse_priorities("") == ((), ())
