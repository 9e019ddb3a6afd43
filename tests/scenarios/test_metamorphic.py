"""What a change of the question may change of the answer: pods that go, types that come, and prices that fall."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.scenarios.kubernetes_rules import selector_matches
from tests.scenarios.problems import POOLS, TYPES, problems
from tests.scenarios.test_random_problems import decide, total
from tests.scenarios.workloads import PREFERENCES, RULES

Raw = dict[str, Any]
FRESH = settings.get_profile("fresh")
MANY = 400
MORE = 1.02
"""A better offer never raises the total by more than this."""

COMPARABLE = tuple(r for r in RULES if r not in PREFERENCES)
"""Without preferences: to fulfil one more of them may rightly cost more."""
UNLIMITED = tuple(p for p in POOLS if "limits" not in p)
"""Without limits: where they let in other pods, the totals are of different things."""


def _rules_of(pod: Raw) -> list[Raw]:
    """The rules about other pods that a pod holds."""
    affinity = pod["spec"].get("affinity") or {}
    found = list(pod["spec"].get("topologySpreadConstraints") or [])
    for kind in ("podAffinity", "podAntiAffinity"):
        found += (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or []
    return found


def _is_counted_by(pod: Raw, other: Raw) -> bool:
    return any(selector_matches(r.get("labelSelector"), pod["metadata"]["labels"]) for r in _rules_of(other))


def _one_less(raw: Raw, which: int) -> None:
    pods = [o for o in raw["objects"] if o["kind"] == "Pod" and "nodeName" not in o["spec"]]
    gone = pods[which % len(pods)]
    assume(not any(_is_counted_by(gone, p) for p in pods))
    fewer = dict(raw, objects=[o for o in raw["objects"] if o is not gone])
    before, after = decide(raw), decide(fewer)
    assert set(after["errors"]) <= set(before["errors"])


def _one_type_more(raw: Raw, which: int) -> None:
    missing = [t for t in TYPES if t not in raw["instanceTypes"] and "nvidia.com/gpu" not in t["capacity"]]
    assume(missing)
    more = dict(raw, instanceTypes=[*raw["instanceTypes"], missing[which % len(missing)]])
    before, after = decide(raw), decide(more)
    assert set(after["errors"]) <= set(before["errors"])
    if after["errors"].keys() == before["errors"].keys():
        assert total(after) <= total(before) * MORE + 1e-9


def _cheaper(raw: Raw, which: int, factor: float) -> None:
    less = copy.deepcopy(raw)
    for offering in less["instanceTypes"][which % len(less["instanceTypes"])]["offerings"]:
        offering["price"] = round(offering["price"] * factor, 6)
    before, after = decide(raw), decide(less)
    assert after["errors"].keys() == before["errors"].keys()
    assert total(after) <= total(before) * MORE + 1e-9


ANY_ONE = st.integers(0, 100)
LIKE_PRICED = problems(rules=COMPARABLE, pools=UNLIMITED, weights=(0,))


@settings(max_examples=20)
@given(raw=problems(pools=UNLIMITED), which=ANY_ONE)
def test_a_pod_that_goes_takes_nobody_elses_place(raw: Raw, which: int) -> None:
    _one_less(raw, which)


@pytest.mark.long
@settings(FRESH, max_examples=MANY)
@given(raw=problems(pools=UNLIMITED), which=ANY_ONE)
def test_a_pod_that_goes_takes_nobody_elses_place_in_hundreds_of_problems(raw: Raw, which: int) -> None:
    _one_less(raw, which)


@settings(max_examples=20)
@given(raw=LIKE_PRICED, which=ANY_ONE)
def test_a_type_more_never_costs_more(raw: Raw, which: int) -> None:
    _one_type_more(raw, which)


@pytest.mark.long
@settings(FRESH, max_examples=MANY)
@given(raw=LIKE_PRICED, which=ANY_ONE)
def test_a_type_more_never_costs_more_in_hundreds_of_problems(raw: Raw, which: int) -> None:
    _one_type_more(raw, which)


@settings(max_examples=20)
@given(raw=LIKE_PRICED, which=ANY_ONE, factor=st.sampled_from((0.99, 0.9, 0.5)))
def test_a_lower_price_never_costs_more(raw: Raw, which: int, factor: float) -> None:
    _cheaper(raw, which, factor)


@pytest.mark.long
@settings(FRESH, max_examples=MANY)
@given(raw=LIKE_PRICED, which=ANY_ONE, factor=st.sampled_from((0.99, 0.9, 0.5)))
def test_a_lower_price_never_costs_more_in_hundreds_of_problems(raw: Raw, which: int, factor: float) -> None:
    _cheaper(raw, which, factor)
