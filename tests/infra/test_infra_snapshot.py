"""The template is compared with a snapshot."""

import difflib
from typing import Any

import pytest

from tests.infra import snapshot


@pytest.mark.parametrize("mode", snapshot.KEPT_BY_MODE)
def test_the_template_matches_its_snapshot(mode: str) -> None:
    kept = snapshot.KEPT_BY_MODE[mode]
    before, now = kept.read_text(), snapshot.words(snapshot.of_mode(mode))
    changed = "\n".join(
        difflib.unified_diff(before.splitlines(), now.splitlines(), kept.name, "the template", lineterm="", n=1)
    )
    assert not changed, f"If that is meant, run: python -m tests.infra.snapshot\n{changed}"


def test_a_widened_permission_changes_one_line(template: dict[str, Any]) -> None:
    policies = [r for r in template["Resources"].values() if r["Type"] == "AWS::IAM::Policy"]
    (statement,) = (
        candidate
        for policy in policies
        for candidate in policy["Properties"]["PolicyDocument"]["Statement"]
        if candidate.get("Sid") == "TerminateOwned"
    )
    before = snapshot.words(template)
    narrow = statement.pop("Condition")
    try:
        widened = snapshot.words(template)
    finally:
        statement["Condition"] = narrow
    assert len(set(widened.splitlines()) - set(before.splitlines())) == 1
