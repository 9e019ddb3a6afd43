"""How decisions may change when a pod is removed, an instance type is added, or a price falls."""

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
LONG_RUN_EXAMPLES = 400
MAX_PRICE_INCREASE = 1.02
"""The factor by which a better offer may raise the total at most."""

COMPARABLE = tuple(r for r in RULES if r not in PREFERENCES)
"""Rules without preferences: satisfying one more of them may cost more."""
UNLIMITED = tuple(p for p in POOLS if "limits" not in p)
"""NodePools without limits: where other pods are left out, totals aren't comparable."""


def _rules_of(pod: Raw) -> list[Raw]:
    """The required rules of a pod about other pods."""
    affinity = pod["spec"].get("affinity") or {}
    rules = list(pod["spec"].get("topologySpreadConstraints") or [])
    for kind in ("podAffinity", "podAntiAffinity"):
        rules += (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or []
    return rules


def _is_selected_by(pod: Raw, selecting: Raw) -> bool:
    return any(selector_matches(r.get("labelSelector"), pod["metadata"]["labels"]) for r in _rules_of(selecting))


def _remove_one_pod(raw: Raw, which: int) -> None:
    pods = [o for o in raw["objects"] if o["kind"] == "Pod" and "nodeName" not in o["spec"]]
    gone = pods[which % len(pods)]
    assume(not any(_is_selected_by(gone, p) for p in pods))
    fewer = dict(raw, objects=[o for o in raw["objects"] if o is not gone])
    before, after = decide(raw), decide(fewer)
    assert set(after["errors"]) <= set(before["errors"])


def _add_one_instance_type(raw: Raw, which: int) -> None:
    missing = [t for t in TYPES if t not in raw["instanceTypes"] and "nvidia.com/gpu" not in t["capacity"]]
    assume(missing)
    more = dict(raw, instanceTypes=[*raw["instanceTypes"], missing[which % len(missing)]])
    before, after = decide(raw), decide(more)
    assert set(after["errors"]) <= set(before["errors"])
    if after["errors"].keys() == before["errors"].keys():
        assert total(after) <= total(before) * MAX_PRICE_INCREASE + 1e-9


def _lower_one_price(raw: Raw, which: int, factor: float) -> None:
    less = copy.deepcopy(raw)
    for offering in less["instanceTypes"][which % len(less["instanceTypes"])]["offerings"]:
        offering["price"] = round(offering["price"] * factor, 6)
    before, after = decide(raw), decide(less)
    assert after["errors"].keys() == before["errors"].keys()
    assert total(after) <= total(before) * MAX_PRICE_INCREASE + 1e-9


INDEX_OF_CHANGE = st.integers(0, 100)
COMPARABLE_PROBLEMS = problems(rules=COMPARABLE, pools=UNLIMITED, weights=(0,))


@settings(max_examples=20)
@given(raw=problems(pools=UNLIMITED), which=INDEX_OF_CHANGE)
def test_removing_a_pod_makes_no_other_pod_unschedulable(raw: Raw, which: int) -> None:
    _remove_one_pod(raw, which)


@pytest.mark.long
@settings(FRESH, max_examples=LONG_RUN_EXAMPLES)
@given(raw=problems(pools=UNLIMITED), which=INDEX_OF_CHANGE)
def test_removing_a_pod_makes_no_other_pod_unschedulable_in_hundreds_of_problems(raw: Raw, which: int) -> None:
    _remove_one_pod(raw, which)


@settings(max_examples=20)
@given(raw=COMPARABLE_PROBLEMS, which=INDEX_OF_CHANGE)
def test_another_instance_type_never_raises_the_price(raw: Raw, which: int) -> None:
    _add_one_instance_type(raw, which)


@pytest.mark.long
@settings(FRESH, max_examples=LONG_RUN_EXAMPLES)
@given(raw=COMPARABLE_PROBLEMS, which=INDEX_OF_CHANGE)
def test_another_instance_type_never_raises_the_price_in_hundreds_of_problems(raw: Raw, which: int) -> None:
    _add_one_instance_type(raw, which)


@settings(max_examples=20)
@given(raw=COMPARABLE_PROBLEMS, which=INDEX_OF_CHANGE, factor=st.sampled_from((0.99, 0.9, 0.5)))
def test_a_lower_price_never_raises_the_total(raw: Raw, which: int, factor: float) -> None:
    _lower_one_price(raw, which, factor)


@pytest.mark.long
@settings(FRESH, max_examples=LONG_RUN_EXAMPLES)
@given(raw=COMPARABLE_PROBLEMS, which=INDEX_OF_CHANGE, factor=st.sampled_from((0.99, 0.9, 0.5)))
def test_a_lower_price_never_raises_the_total_in_hundreds_of_problems(raw: Raw, which: int, factor: float) -> None:
    _lower_one_price(raw, which, factor)
