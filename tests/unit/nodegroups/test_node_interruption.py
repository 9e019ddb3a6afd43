"""What a node's annotation says of its interruption, and what later events change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.api.kubernetes import Node
from shared.api.meta import ObjectMeta
from shared.node_groups.node_interruption import (
    ANNOTATION,
    NodeInterruption,
    WaitingHook,
    cordoned,
    interruption_of,
    merged,
    with_interruption,
)

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def hook(name: str = "a") -> WaitingHook:
    return WaitingHook(group="workers", name="drain", token=name, timeout=300, heartbeat_at=NOW + MINUTE)


def interruption(**fields: object) -> NodeInterruption:
    return NodeInterruption(**{"reason": "SpotInterrupted", "since": NOW, "next_step": NOW, **fields})  # type: ignore[arg-type]


def test_the_annotation_has_everything() -> None:
    known = interruption(deadline=NOW + MINUTE, hooks=(hook(),))
    assert interruption_of(with_interruption(Node(), known)) == known


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"reason": 1}', '{"reason":"x","since":"never"}'])
def test_a_malformed_annotation_is_none(text: str) -> None:
    assert interruption_of(Node(metadata=ObjectMeta(annotations={ANNOTATION: text}))) is None


def test_an_event_that_adds_nothing_leaves_the_next_step_alone() -> None:
    before = interruption(deadline=NOW + MINUTE, hooks=(hook(),), next_step=NOW + MINUTE)
    later = NOW + MINUTE / 2
    assert merged(before, interruption(deadline=NOW + 2 * MINUTE, hooks=(hook(),), next_step=later)) is before


def test_the_earlier_deadline_and_all_hooks_count() -> None:
    drained = interruption(deadline=NOW + 50 * MINUTE, hooks=(hook(),), drained=True)
    warned = merged(drained, interruption(deadline=NOW + 2 * MINUTE, hooks=(hook("b"),), next_step=NOW + MINUTE))
    assert (warned.deadline, warned.drained) == (NOW + 2 * MINUTE, False)
    assert [waiting.token for waiting in warned.hooks] == ["a", "b"]
    assert warned.is_due(NOW + MINUTE)


def test_a_confirmed_warning_adds_its_deadline() -> None:
    unconfirmed = interruption(next_step=NOW + MINUTE)
    assert merged(unconfirmed, interruption(deadline=NOW + 2 * MINUTE)).deadline == NOW + 2 * MINUTE


def test_a_heartbeat_is_due_after_half_of_the_time_out() -> None:
    assert hook().beaten(NOW).heartbeat_at == NOW + timedelta(seconds=150)


def test_steps_are_due_and_overdue() -> None:
    waits = interruption(next_step=NOW + MINUTE)
    assert not waits.is_due(NOW)
    assert waits.is_due(NOW + MINUTE)
    assert not waits.is_overdue(NOW + MINUTE)
    assert waits.is_overdue(NOW + 2 * MINUTE)
    assert not interruption(drained=True).is_due(NOW + MINUTE)


def test_a_node_that_outlives_its_interruption_is_like_any_other() -> None:
    drained = interruption(deadline=NOW, drained=True)
    assert not drained.is_past(NOW + 9 * MINUTE)
    assert drained.is_past(NOW + 10 * MINUTE)
    assert not interruption(deadline=NOW).is_past(NOW + 10 * MINUTE)


@pytest.mark.parametrize(
    ("reason", "taint"),
    [
        ("SpotInterrupted", "spot-itn"),
        ("ScheduledChange", "scheduled-maintenance"),
        ("LifecycleAction", "asg-lifecycle-termination"),
    ],
)
def test_a_node_is_cordoned_once_with_the_taint_of_the_reason(reason: str, taint: str) -> None:
    once = cordoned(Node(), interruption(reason=reason))
    again = cordoned(once, interruption(reason=reason, since=NOW + MINUTE))
    assert again == once
    assert once.spec.unschedulable
    assert [(t.key, t.effect) for t in once.spec.taints] == [(f"aws-node-termination-handler/{taint}", "NoSchedule")]
