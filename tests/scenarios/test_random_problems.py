"""Random problems through the independent judge: decisions are right, alike in any order, and refuse nobody idly."""

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

from tests.scenarios import checker, cluster, deciding, kubernetes_rules, single_node_check, topology_checker
from tests.scenarios.problems import problems

Raw = dict[str, Any]
FRESH = settings.get_profile("fresh")
MANY = 1000
"""Examples of a property in the long run; together they are thousands of problems."""


def decide(raw: Raw) -> Raw:
    """The answer of ``tenon simulate --json``, without the figures that are no part of the decision."""
    asked = deciding.question(raw)
    assert not asked.invalid
    return deciding.answer(asked)


def total(answer: Raw) -> float:
    return float(sum(c["cheapest"]["price"] for c in answer["nodeClaims"]))


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    own = (checker, cluster, kubernetes_rules, single_node_check, topology_checker)
    for module in own:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert {n.partition(".")[0] for n in names - {m.__name__ for m in own}} <= sys.stdlib_module_names


def _right(raw: Raw) -> None:
    assert checker.check(raw, decide(raw)) == []


def _alike(raw: Raw, seed: int) -> None:
    order = random.Random(seed)  # noqa: S311 (a shuffle)
    other = dict(raw, objects=list(raw["objects"]), instanceTypes=list(raw["instanceTypes"]))
    order.shuffle(other["objects"])
    order.shuffle(other["instanceTypes"])
    assert json.dumps(decide(other)) == json.dumps(decide(raw))


def _none_refused_idly(raw: Raw) -> None:
    assert single_node_check.could_run_alone(raw, decide(raw)) == {}


@settings(max_examples=60)
@given(raw=problems())
def test_any_problem_is_decided_rightly(raw: Raw) -> None:
    _right(raw)


@pytest.mark.long
@settings(FRESH, max_examples=MANY)
@given(raw=problems())
def test_thousands_of_problems_are_decided_rightly(raw: Raw) -> None:
    _right(raw)


@settings(max_examples=25)
@given(raw=problems(), seed=st.integers(0, 1000))
def test_the_order_of_objects_changes_no_byte(raw: Raw, seed: int) -> None:
    _alike(raw, seed)


@pytest.mark.long
@settings(FRESH, max_examples=MANY // 2)
@given(raw=problems(), seed=st.integers(0, 1000))
def test_the_order_of_objects_changes_no_byte_of_thousands(raw: Raw, seed: int) -> None:
    _alike(raw, seed)


@settings(max_examples=20)
@given(raw=problems())
def test_no_pod_is_refused_that_could_have_a_machine_to_itself(raw: Raw) -> None:
    _none_refused_idly(raw)


@pytest.mark.long
@settings(FRESH, max_examples=MANY // 5)
@given(raw=problems())
def test_no_pod_of_hundreds_of_problems_is_refused_that_could_have_a_machine_to_itself(raw: Raw) -> None:
    _none_refused_idly(raw)
