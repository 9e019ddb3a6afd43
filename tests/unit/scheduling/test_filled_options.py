"""Pods that fill launch options: one option at a time and all at once give the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.scheduling.solver import fit
from shared.scheduling.solver.fit import Item, fill_options
from shared.scheduling.state.instance_type_arrays import undominated
from shared.scheduling.topology.domain_counts import HostCounts, HostRules, OneHost
from shared.scheduling.topology.feasibility import Feasibility

TERMS = st.dictionaries(st.integers(0, 2), st.integers(1, 3), max_size=2)
RULES = st.tuples(TERMS, TERMS, TERMS).map(lambda limits: HostRules(*limits))
SIZES = st.tuples(st.integers(0, 9), st.integers(0, 9))


def _item(size: tuple[int, int], count: int, rules: HostRules, allowed: list[bool]) -> Item:
    feasibility = Feasibility(
        requirements={},
        options=np.array(allowed),
        custom=np.zeros(len(allowed), np.int64),
        offerings=np.ones(1, np.bool_),
        nodes=np.zeros(0, np.bool_),
        host=rules,
        ports=frozenset(),
        mounted_volumes=frozenset(),
        mask_key=0,
    )
    return Item(feasibility, np.array([*size, 1]), [f"p{i}" for i in range(count)], worth=1 + sum(size))


@given(
    free=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 8)), min_size=3, max_size=3),
    items=st.lists(st.tuples(SIZES, st.integers(1, 5), RULES, st.lists(st.booleans(), min_size=3, max_size=3))),
)
def test_few_options_hold_what_many_hold(
    free: list[tuple[int, int, int]], items: list[tuple[tuple[int, int], int, HostRules, list[bool]]]
) -> None:
    pods, options = [_item(*item) for item in items], np.arange(3)
    few = fill_options(np.array(free), options, pods, 0)
    repeats = fit._FEW_NODES + 1
    pods = [_item(size, n, rules, allowed * repeats) for size, n, rules, allowed in items]
    many = fill_options(np.array(free * repeats), np.arange(3 * repeats), pods, 0)
    assert few.counts[:, few.node_of].tolist() == many.counts[:, many.node_of[:3]].tolist()
    assert few.worth.tolist() == many.worth[:3].tolist()


@given(pods=st.lists(st.tuples(RULES, st.integers(1, 4)), max_size=5), rules=RULES)
def test_one_host_takes_what_many_hosts_take(pods: list[tuple[HostRules, int]], rules: HostRules) -> None:
    host, hosts = OneHost(), HostCounts(1)
    for own, n in pods:
        host.add(own, n)
        hosts.add(np.array([0]), np.array([n]), own)
    fits = np.array([100])
    hosts.restrict(fits, rules)
    assert min(100, host.room(rules)) == fits[0]


@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=12))
def test_each_dominated_option_has_one_that_dominates_it(rows: list[tuple[int, int, int]]) -> None:
    free, price = np.array([row[:2] for row in rows]), np.array([float(row[2]) for row in rows])
    kept = undominated(free, price).tolist()

    def dominates(a: int, b: int) -> bool:
        return bool((free[a] >= free[b]).all() and price[a] <= price[b])

    assert all(any(dominates(k, i) for k in kept) for i in range(len(rows)))
    assert not any(dominates(a, b) for a in kept for b in kept if a != b)
