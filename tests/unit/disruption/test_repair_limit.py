"""How many of a NodePool's nodes may be unhealthy before node repair takes the cause for something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.disruption.unhealthy_cluster import (
    LIMIT,
    annotate_pool,
    break_node,
    compute,
    heal,
    minutes,
    repaired,
    uninitialize,
    with_repair,
)

if TYPE_CHECKING:
    from tests.unit.disruption.conftest import Cluster


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """A cluster with node repair."""
    return with_repair(cluster)


def test_more_than_a_fifth_of_unhealthy_nodes_are_left_alone_and_events_say_so(cluster: Cluster) -> None:
    break_node(cluster, "a")
    break_node(cluster, "b", ago=minutes(1))  # counts, though it is tolerated still
    result = compute(cluster)
    assert result.commands == ()
    assert [b.node for b in result.blocked] == ["a"]
    assert {(w.ref.kind, w.ref.name, w.reason) for w in result.warnings} == {
        ("NodePool", "default", "NodeRepairBlocked"),
        ("Node", "a", "NodeRepairBlocked"),
        ("NodeClaim", "claim-a", "NodeRepairBlocked"),
    }
    assert {w.message for w in result.warnings} == {"more than 20% of the nodes of NodePool default are unhealthy"}
    heal(cluster, "b")
    assert (repaired(cluster), compute(cluster).warnings) == (["a"], ())


def test_a_fifth_is_rounded_up_and_nodes_count_that_are_not_initialized(cluster: Cluster) -> None:
    for name in "ab":
        break_node(cluster, name)
    assert repaired(cluster) == []
    cluster.node("f", 1)
    uninitialize(cluster, "f")
    assert repaired(cluster) == ["a"]


@pytest.mark.parametrize(
    ("limit", "unhealthy", "is_repaired"),
    [
        ("2", "ab", True),
        ("2", "abc", False),
        ("50%", "abc", True),
        ("50%", "abcd", False),
        ("0", "a", False),
        ("100%", "abcde", True),
        (" 2 ", "ab", True),
    ],
)
def test_a_small_pool_has_another_limit_by_annotation(
    cluster: Cluster, limit: str, unhealthy: str, *, is_repaired: bool
) -> None:
    annotate_pool(cluster, {LIMIT: limit})
    for name in unhealthy:
        break_node(cluster, name)
    result = compute(cluster)
    assert bool(result.commands) == is_repaired
    assert {w.message for w in result.warnings} == (
        set() if is_repaired else {f"more than {limit} of the nodes of NodePool default are unhealthy"}
    )


@pytest.mark.parametrize("limit", ["two", "-1", "150%", "%", "", "0.5", "²", "1 0"])
def test_an_invalid_limit_is_named_and_the_default_holds(cluster: Cluster, limit: str) -> None:
    annotate_pool(cluster, {LIMIT: limit})
    break_node(cluster, "a")
    assert repaired(cluster) == ["a"]
    (warning,) = compute(cluster).warnings
    assert (warning.ref.kind, warning.reason) == ("NodePool", "InvalidAnnotation")
    assert f'annotation tenon.sh/repair-limit is "{limit}"; allowed are' in warning.message
    break_node(cluster, "b")
    assert repaired(cluster) == []
