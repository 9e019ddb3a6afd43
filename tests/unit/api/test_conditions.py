"""Conditions say of which generation of their object they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.api.meta import Condition, condition, with_condition, with_same_condition
from shared.api.nodeclaim import with_ready

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


@pytest.mark.parametrize(
    ("statuses", "status", "reason"),
    [
        ({}, "Unknown", "NotLaunched"),
        ({"Launched": "Unknown"}, "Unknown", "NotLaunched"),
        ({"Launched": "False"}, "False", "NotLaunched"),
        ({"Launched": "True"}, "Unknown", "NotRegistered"),
        ({"Launched": "True", "Registered": "True", "Initialized": "Unknown"}, "Unknown", "NotInitialized"),
        ({"Launched": "True", "Initialized": "False"}, "False", "NotInitialized"),
        ({"Launched": "True", "Registered": "True", "Initialized": "True"}, "True", "Ready"),
    ],
)
def test_a_nodeclaim_that_waits_is_unknown_and_one_that_failed_is_not_ready(
    statuses: dict[str, str], status: str, reason: str
) -> None:
    before = [Condition(type=t, status=s, message="" if s == "True" else f"why {t}") for t, s in statuses.items()]
    ready = condition(with_ready(before, now=NOW, generation=2), "Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.observed_generation) == (status, reason, 2)
    waits_for = reason.removeprefix("Not")
    assert ready.message == (f"why {waits_for}" if waits_for in statuses else "")
