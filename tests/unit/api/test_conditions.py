"""Conditions say of which generation of their object they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.api.meta import Condition, with_condition, with_same_condition

NOW = datetime(2026, 11, 27, tzinfo=UTC)


def test_a_condition_that_is_evaluated_again_after_an_edit_is_of_the_new_generation_and_keeps_its_time() -> None:
    before = with_condition([], "Ready", status=True, reason="Ready", now=NOW, generation=1)
    (after,) = with_condition(before, "Ready", status=True, reason="Ready", now=NOW + timedelta(hours=1), generation=2)
    assert (after.observed_generation, after.last_transition_time) == (2, NOW)
    (kept,) = with_same_condition(before, "Ready", generation=3)
    assert (kept.observed_generation, kept.last_transition_time) == (3, NOW)


def test_conditions_of_an_older_version_get_a_generation_and_others_keep_theirs() -> None:
    stored = [Condition(type="Launched", status="True"), Condition(type="Drained", observed_generation=1)]
    conditions = with_condition(stored, "Ready", status=True, reason="Ready", now=NOW, generation=2)
    assert {c.type: c.observed_generation for c in conditions} == {"Launched": 2, "Drained": 1, "Ready": 2}
