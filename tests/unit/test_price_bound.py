"""The bound that benchmarks compare prices with: below any real price, and the linear program's own optimum."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lp_lower_bound import covering, least_price
from bench.pod_mixes import mix, pod, pool, types


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int]]:
    kinds = draw(st.integers(1, 3))
    row = st.lists(st.integers(1, 20), min_size=kinds, max_size=kinds)
    gives = draw(st.lists(row, min_size=1, max_size=5))
    price = draw(st.lists(st.integers(1, 50), min_size=len(gives), max_size=len(gives)))
    need = draw(st.lists(st.integers(0, 60), min_size=kinds, max_size=kinds))
    return gives, price, need


@given(programs())
def test_the_bound_is_the_price_of_the_best_corner(program: tuple[list[list[int]], list[int], list[int]]) -> None:
    gives, price, need = (np.array(x, np.float64) for x in program)
    assert covering(gives, price, need) == pytest.approx(_best_corner(gives, price, need), rel=1e-6, abs=1e-9)


def _best_corner(gives: np.ndarray, price: np.ndarray, need: np.ndarray) -> float:
    """Every choice of as many types as resources that just covers those, with what is left over, tried."""
    kinds = len(need)
    columns = np.hstack([gives.T, -np.eye(kinds)])
    costs = np.concatenate([price, np.zeros(kinds)])
    best = float("inf")
    for chosen in combinations(range(len(costs)), kinds):
        basis = columns[:, chosen]
        if abs(np.linalg.det(basis)) < 1e-9:
            continue
        x = np.linalg.solve(basis, need)
        if (x >= -1e-9).all():
            best = min(best, float(costs[list(chosen)] @ x))
    return best


def test_a_resource_that_no_type_has_has_no_price() -> None:
    assert covering(np.array([[1.0, 0.0]]), np.array([1.0]), np.array([1.0, 1.0])) == float("inf")


def test_pods_that_bear_no_like_on_a_host_need_a_machine_each() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    alone = [pod(f"a{i}", {"app": "a"}, "10m", "10Mi", affinity=rule) for i in range(7)]
    cheapest = types(1)[0]["offerings"][0]["price"]
    assert least_price({"objects": [pool(), *alone], "instanceTypes": types(9)}) == pytest.approx(7 * cheapest)


def test_the_mix_is_the_same_each_time_and_a_fifth_of_each_kind() -> None:
    assert mix(50) == mix(50)
    pods = [o for o in mix(50)["objects"] if o["kind"] == "Pod"]
    assert sum("affinity" in p["spec"] for p in pods) == 20
    assert sum("topologySpreadConstraints" in p["spec"] for p in pods) == 20
