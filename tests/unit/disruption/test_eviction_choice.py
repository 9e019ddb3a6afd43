"""The cheapest evictions that free what a node lacks, compared with all sets of pods."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from shared.disruption.eviction_choice import EvictablePod, cheapest_evictions

_AMOUNTS = st.sampled_from([0, 1, 2, 3, 5, 8])


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[EvictablePod], dict[str, int], dict[str, int]]:
    sizes = draw(
        st.lists(st.tuples(_AMOUNTS, _AMOUNTS, st.integers(0, 4), st.sampled_from(["", "a", "b"])), max_size=9)
    )
    pods = [
        EvictablePod(key=f"p{i}", frees={"cpu": cpu, "memory": memory, "pods": 1}, cost=cost, budget=budget)
        for i, (cpu, memory, cost, budget) in enumerate(sizes)
    ]
    lacking = {"cpu": draw(st.integers(0, 12)), "memory": draw(st.integers(0, 12)), "pods": draw(st.integers(0, 2))}
    return pods, lacking, {"a": draw(st.integers(0, 3)), "b": draw(st.integers(0, 3))}


def _frees_enough(pods: tuple[EvictablePod, ...], lacking: dict[str, int]) -> bool:
    return all(sum(p.frees[name] for p in pods) >= amount for name, amount in lacking.items())


def _is_allowed(pods: tuple[EvictablePod, ...], allowed: dict[str, int]) -> bool:
    return all(number <= allowed[budget] for budget, number in Counter(p.budget for p in pods if p.budget).items())


@given(problems())
def test_the_choice_frees_enough_at_the_least_cost_or_nothing(
    problem: tuple[list[EvictablePod], dict[str, int], dict[str, int]],
) -> None:
    pods, lacking, allowed = problem
    sets = chain.from_iterable(combinations(pods, size) for size in range(len(pods) + 1))
    enough = [s for s in sets if _frees_enough(s, lacking) and _is_allowed(s, allowed)]
    chosen = cheapest_evictions(pods, lacking, allowed=allowed)
    if chosen is None:
        assert enough == []
        return
    evicted = tuple(p for p in pods if p.key in chosen)
    assert _frees_enough(evicted, lacking)
    assert _is_allowed(evicted, allowed)
    cost = sum(p.cost for p in evicted), len(evicted)
    assert cost == min((sum(p.cost for p in s), len(s)) for s in enough)


def test_a_node_of_many_different_pods_is_decided_within_the_steps() -> None:
    pods = [
        EvictablePod(key=f"p{i}", frees={"cpu": 37 + i * 13 % 97, "memory": 11 + i * 29 % 83}, cost=1000 + i * 7 % 31)
        for i in range(110)
    ]
    chosen = cheapest_evictions(pods, {"cpu": 900, "memory": 700}, allowed={})
    assert chosen is not None
    assert sum(p.frees["cpu"] for p in pods if p.key in chosen) >= 900
    assert sum(p.frees["memory"] for p in pods if p.key in chosen) >= 700
