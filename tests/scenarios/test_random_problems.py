"""Random problems: decisions satisfy all rules, are independent of order, and leave out no pod without need."""

from __future__ import annotations

import ast
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios import checker, cluster, kubernetes_rules, simulation, single_node_check, topology_checker
from tests.scenarios.problems import problems

Raw = dict[str, Any]
FRESH = settings.get_profile("fresh")
LONG_RUN_EXAMPLES = 1000
"""Examples of a property in the long run: thousands of problems together."""


def decide(raw: Raw) -> Raw:
    """The output of ``tenon simulate --json`` without its stats."""
    simulated = simulation.simulation_input(raw)
    assert not simulated.invalid
    return simulation.decide(simulated)


def total(answer: Raw) -> float:
    return float(sum(c["cheapest"]["price"] for c in answer["nodeClaims"]))


def test_the_checker_shares_no_code_with_the_scheduler() -> None:
    own = (checker, cluster, kubernetes_rules, single_node_check, topology_checker)
    for module in own:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert {n.partition(".")[0] for n in names - {m.__name__ for m in own}} <= sys.stdlib_module_names


def _assert_satisfies_rules(raw: Raw) -> None:
    assert checker.check(raw, decide(raw)) == []


def _assert_independent_of_order(raw: Raw, seed: int) -> None:
    order = random.Random(seed)  # noqa: S311 (a shuffle)
    shuffled = dict(raw, objects=list(raw["objects"]), instanceTypes=list(raw["instanceTypes"]))
    order.shuffle(shuffled["objects"])
    order.shuffle(shuffled["instanceTypes"])
    assert json.dumps(decide(shuffled)) == json.dumps(decide(raw))


def _assert_no_avoidable_errors(raw: Raw) -> None:
    assert single_node_check.could_run_alone(raw, decide(raw)) == {}


@settings(max_examples=60)
@given(raw=problems())
def test_any_decision_satisfies_all_rules(raw: Raw) -> None:
    _assert_satisfies_rules(raw)


@pytest.mark.long
@settings(FRESH, max_examples=LONG_RUN_EXAMPLES)
@given(raw=problems())
def test_decisions_of_thousands_of_problems_satisfy_all_rules(raw: Raw) -> None:
    _assert_satisfies_rules(raw)


@settings(max_examples=25)
@given(raw=problems(), seed=st.integers(0, 1000))
def test_the_order_of_objects_does_not_change_the_decision(raw: Raw, seed: int) -> None:
    _assert_independent_of_order(raw, seed)


@pytest.mark.long
@settings(FRESH, max_examples=LONG_RUN_EXAMPLES // 2)
@given(raw=problems(), seed=st.integers(0, 1000))
def test_the_order_of_objects_does_not_change_thousands_of_decisions(raw: Raw, seed: int) -> None:
    _assert_independent_of_order(raw, seed)


@settings(max_examples=20)
@given(raw=problems())
def test_no_unschedulable_pod_could_run_on_a_node_of_its_own(raw: Raw) -> None:
    _assert_no_avoidable_errors(raw)


@pytest.mark.long
@settings(FRESH, max_examples=LONG_RUN_EXAMPLES // 5)
@given(raw=problems())
def test_no_unschedulable_pod_of_hundreds_of_problems_could_run_on_a_node_of_its_own(raw: Raw) -> None:
    _assert_no_avoidable_errors(raw)
