"""Limited resources have a price before a limit is hit, and only where a limit may leave pods out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench import limited_pool
from shared.scheduling.scheduler import schedule
from tests.scenarios import simulation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Decide = Callable[[dict[str, Any]], dict[str, Any]]

SEEDS = range(3)
RICH, LEAN = "r1.xlarge", "c1.xlarge"


def types(clusters: ModuleType) -> list[dict[str, Any]]:
    """A memory-rich type, and a leaner one that is a little more expensive; both run three of the pods."""
    return [clusters.instance_type(RICH, 4, 32, 0.16), clusters.instance_type(LEAN, 4, 8, 0.17)]


def decided(
    decide: Decide, clusters: ModuleType, *objects: object, count: int = 12, **pod: object
) -> tuple[set[str], dict[str, Any]]:
    """The cheapest instance types of the NodeClaims, and the decision."""
    pods = clusters.pods("web", count, cpu="1", memory="1Gi", **pod)
    decision = decide({"objects": [*objects, *pods], "instanceTypes": types(clusters)})
    return {c["cheapest"]["instanceType"] for c in decision["nodeClaims"]}, decision


def test_the_cheapest_type_is_launched_where_a_limit_is_far_away(decide: Decide, clusters: ModuleType) -> None:
    chosen, unlimited = decided(decide, clusters, clusters.pool())
    assert chosen == {RICH}
    _, limited = decided(decide, clusters, clusters.pool(limits={"memory": f"{100 * 4 * 32}Gi", "cpu": "1600"}))
    assert limited["nodeClaims"] == unlimited["nodeClaims"]


def test_a_type_with_less_of_what_is_limited_is_launched_before_the_limit_is_hit(
    decide: Decide, clusters: ModuleType
) -> None:
    pool = clusters.pool(limits={"memory": "1000Gi"})
    chosen, decision = decided(decide, clusters, pool, count=24)
    assert chosen == {LEAN}
    assert not decision["errors"]
    assert all(RICH not in c["instanceTypes"] for c in decision["nodeClaims"])


def test_prices_of_claims_are_those_that_are_paid(decide: Decide, clusters: ModuleType) -> None:
    _, decision = decided(decide, clusters, clusters.pool(limits={"memory": "1000Gi"}), count=24)
    assert [c["cheapest"]["price"] for c in decision["nodeClaims"]] == pytest.approx([0.17 * 0.4] * 8)


def test_claims_name_the_limited_resources_that_decided_their_type(clusters: ModuleType) -> None:
    pods = clusters.pods("web", 24, cpu="1", memory="1Gi")
    document = {"objects": [clusters.pool(limits={"memory": "1000Gi", "cpu": "9000"}), *pods]}
    simulated = simulation.simulation_input({**document, "instanceTypes": types(clusters)})
    decision = schedule(simulated.problem)
    assert {claim.saved_resources for claim in decision.new_node_claims} == {("memory",)}


def test_a_limit_has_no_price_for_pods_that_another_nodepool_runs(decide: Decide, clusters: ModuleType) -> None:
    limited = clusters.pool("limited", limits={"memory": "1000Gi"}, weight=10)
    chosen, _ = decided(decide, clusters, limited, clusters.pool("other"), count=24)
    assert chosen == {RICH}


def test_pods_that_tolerate_no_taint_of_a_limited_nodepool_raise_no_price(decide: Decide, clusters: ModuleType) -> None:
    taint = {"key": "batch", "effect": "NoSchedule"}
    limited = clusters.pool("limited", limits={"memory": "1000Gi"}, taints=[taint])
    batch = clusters.pods("batch", 1, cpu="3", memory="1Gi", tolerations=[{"key": "batch", "operator": "Exists"}])
    chosen, _ = decided(decide, clusters, limited, clusters.pool("other"), *batch, count=60)
    assert chosen == {RICH}


def test_limits_over_all_nodepools_have_a_price_too(decide: Decide, clusters: ModuleType) -> None:
    limited = clusters.pool()
    limited["metadata"]["annotations"] = {"tenon.sh/cluster-limits": "memory=1000Gi"}
    chosen, _ = decided(decide, clusters, limited, count=24)
    assert chosen == {LEAN}


def test_the_limited_pool_runs_most_pods_that_come_over_ten_seconds() -> None:
    assert min(limited_pool.measure(seed).running for seed in SEEDS) >= limited_pool.TARGET


@pytest.mark.long
def test_the_limited_pool_runs_most_pods_in_any_order() -> None:
    assert min(limited_pool.measure(seed).running for seed in range(limited_pool.SEEDS)) >= limited_pool.TARGET


def test_a_limit_of_a_hundred_times_the_demand_changes_no_price() -> None:
    assert limited_pool.measure(0, seconds=2, limit="464000Gi") == limited_pool.measure(0, seconds=2, limit="")
