"""The bound of whole nodes is the price of the best of all combinations, and at least that of fractions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import lp_lower_bound
from bench.month.whole_node_bound import covering

SIZES = st.lists(st.integers(1, 8), min_size=2, max_size=2)


@settings(max_examples=30, deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=3), st.lists(st.integers(1, 9), min_size=3, max_size=3), SIZES)
def test_it_is_the_best_combination(sizes: list[list[int]], prices: list[int], need: list[int]) -> None:
    capacity, price = np.array(sizes, np.float64), np.array(prices[: len(sizes)], np.float64)
    wanted = np.array(need, np.float64)
    best = min(
        float(price @ np.array(numbers))
        for numbers in product(range(max(need) + 1), repeat=len(sizes))
        if (capacity.T @ np.array(numbers) >= wanted).all()
    )
    bound = covering(capacity, price, wanted)
    assert bound == pytest.approx(best, rel=1e-3)
    assert bound >= lp_lower_bound.covering(capacity, price, wanted) - 1e-6
