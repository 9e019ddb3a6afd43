"""Upgrading never makes a cluster's stored objects invalid: the kinds may gain fields and lose rules, nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.unit.api.crd_facts import broken, kept, now

POOL = "nodepools.karpenter.sh/v1 .spec"


def test_what_was_accepted_is_still_accepted() -> None:
    assert broken(kept(), now()) == [], "announce the change to users, then run python -m tests.unit.api.crd_facts"


def test_fields_that_are_new_are_kept_so_that_they_stay() -> None:
    assert kept().keys() == now().keys(), "run python -m tests.unit.api.crd_facts"


@pytest.mark.parametrize(
    ("field", "change", "expected"),
    [
        (f"{POOL}.weight", None, "is gone"),
        (f"{POOL}.weight", {"type": "string"}, "was integer, and is string"),
        (f"{POOL}.weight", {"maximum": 10}, "has maximum 10"),
        (f"{POOL}.disruption", {"required": ["budgets", "consolidateAfter"]}, "must have budgets"),
        (f"{POOL}.disruption.consolidationPolicy", {"enum": ["WhenEmpty"]}, "may only be ['WhenEmpty']"),
    ],
)
def test_a_change_that_could_refuse_an_object_is_found(
    field: str, change: dict[str, Any] | None, expected: str
) -> None:
    after: Any = copy.deepcopy(dict(now()))
    if change is None:
        del after[field]
    else:
        after[field] = {**after[field], **change}
    assert [fault for fault in broken(now(), after) if fault == f"{field} {expected}"]


def test_a_value_more_a_rule_less_and_a_new_field_are_fine() -> None:
    after: Any = copy.deepcopy(dict(now()))
    after[f"{POOL}.disruption.consolidationPolicy"]["enum"].append("Never")
    del after[f"{POOL}.weight"]["maximum"]
    after[f"{POOL}.color"] = {"type": "string", "enum": ["red"]}
    assert broken(now(), after) == []
