"""What moving a node's pods costs: their shares of its price, whatever cheaper types the NodePool has."""

from __future__ import annotations

from typing import Any

import pytest

from shared.api import labels as names
from shared.disruption.candidate_matrix import CandidateMatrix, build_candidate_matrix
from shared.disruption.candidates import all_candidates
from shared.disruption.disruption_cost import RESTART_COST

DAY = {names.LOST_WORK: "24h"}
ON_DEMAND, SPOT = 4 * 0.05, 4 * 0.02
"""USD per hour of the node with 4 CPUs."""


def matrix(cluster: Any, price: float) -> CandidateMatrix:
    return build_candidate_matrix(cluster.state(), list(all_candidates(cluster.state())), [price])


def lost_work(matrix: CandidateMatrix, pods: int = 1) -> float:
    return float(matrix.disruption_cost[0]) - pods * RESTART_COST


def test_lost_work_on_an_on_demand_node_counts_by_its_price_and_not_by_spots(cluster: Any) -> None:
    cluster.node("a", 4)
    cluster.pod("p", "a", 1000, annotations=DAY)
    assert lost_work(matrix(cluster, ON_DEMAND)) == pytest.approx(24 * ON_DEMAND / 4)


def test_on_a_spot_node_it_counts_by_the_spot_price(cluster: Any) -> None:
    cluster.node("a", 4, spot=True)
    cluster.pod("p", "a", 1000, annotations=DAY)
    assert lost_work(matrix(cluster, SPOT)) == pytest.approx(24 * SPOT / 4)


def test_each_pod_counts_by_its_own_share(cluster: Any) -> None:
    cluster.node("a", 4)
    cluster.pod("large", "a", 3000)
    cluster.pod("small", "a", 500, annotations=DAY)
    ten_minutes = ON_DEMAND * 3 / 4 / 6
    assert lost_work(matrix(cluster, ON_DEMAND), pods=2) == pytest.approx(24 * ON_DEMAND / 8 + ten_minutes)


def test_a_node_that_a_commitment_pays_counts_by_what_its_pods_could_cost(cluster: Any) -> None:
    cluster.node("a", 4)
    cluster.pod("p", "a", 1000, annotations=DAY)
    free = matrix(cluster, 0.0)
    assert lost_work(free) == pytest.approx(24 * free.resource_value[0]) == pytest.approx(24 * SPOT / 4)
