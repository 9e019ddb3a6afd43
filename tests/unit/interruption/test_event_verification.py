"""EC2's facts about an instance confirm or contradict an event about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.interruptions.event_verification import SCHEDULE_LAG, STATE_LAG, UNKNOWN, InstanceFacts, Verdict, verify
from shared.interruptions.notice import Evidence

NOW = timedelta()
OF_ONE_INSTANCE = [evidence for evidence in Evidence if evidence is not Evidence.SCHEDULED]
NO_CAPACITY = "instance-terminated-no-capacity"


def facts(capacity_type: str, *, state: str = "running", status: str = "") -> InstanceFacts:
    return InstanceFacts(state=state, capacity_type=capacity_type, spot_status=status)


@pytest.mark.parametrize("evidence", OF_ONE_INSTANCE)
def test_without_an_answer_every_event_is_confirmed(evidence: Evidence) -> None:
    assert verify(evidence, None, age=NOW) is Verdict.CONFIRMED


@pytest.mark.parametrize("evidence", OF_ONE_INSTANCE)
@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
@pytest.mark.parametrize("capacity_type", ["spot", "on-demand", "reserved"])
def test_any_event_about_an_instance_that_is_not_running_is_confirmed(
    evidence: Evidence, state: str, capacity_type: str
) -> None:
    assert verify(evidence, facts(capacity_type, state=state, status="fulfilled"), age=NOW) is Verdict.CONFIRMED


@pytest.mark.parametrize("evidence", [Evidence.SPOT, Evidence.SPOT_INTERRUPTED])
@pytest.mark.parametrize("capacity_type", ["on-demand", "reserved"])
def test_spot_events_about_instances_of_another_capacity_type_are_contradicted(
    evidence: Evidence, capacity_type: str
) -> None:
    assert verify(evidence, facts(capacity_type), age=NOW) is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    "status",
    [NO_CAPACITY, "instance-terminated-by-price", "marked-for-termination", "marked-for-stop", "", "anything-new"],
)
def test_only_a_fulfilled_spot_request_leaves_a_warning_unconfirmed(status: str) -> None:
    assert verify(Evidence.SPOT_INTERRUPTED, facts("spot", status=status), age=NOW) is Verdict.CONFIRMED
    assert verify(Evidence.SPOT_INTERRUPTED, facts("spot", status="fulfilled"), age=NOW) is Verdict.UNCONFIRMED


def test_a_recommendation_about_a_spot_instance_is_confirmed_whatever_its_status() -> None:
    assert verify(Evidence.SPOT, facts("spot", status="fulfilled"), age=NOW) is Verdict.CONFIRMED


def test_a_reservation_interruption_needs_a_reserved_instance() -> None:
    assert verify(Evidence.RESERVED, facts("reserved"), age=NOW) is Verdict.CONFIRMED
    assert verify(Evidence.RESERVED, facts("on-demand"), age=NOW) is Verdict.UNCONFIRMED
    assert verify(Evidence.RESERVED, facts("spot"), age=NOW) is Verdict.CONTRADICTED


def test_a_state_change_is_pending_while_ec2_may_lag_and_contradicted_afterwards() -> None:
    assert verify(Evidence.NOT_RUNNING, facts("spot"), age=STATE_LAG - timedelta(seconds=1)) is Verdict.PENDING
    assert verify(Evidence.NOT_RUNNING, facts("spot"), age=STATE_LAG) is Verdict.CONTRADICTED


def test_an_instance_that_ec2_does_not_know_yet_has_ended_once_ec2_should_know_it() -> None:
    unknown = facts("spot", state=UNKNOWN)
    assert verify(Evidence.NOT_RUNNING, unknown, age=STATE_LAG - timedelta(seconds=1)) is Verdict.PENDING
    assert verify(Evidence.NOT_RUNNING, unknown, age=STATE_LAG) is Verdict.CONFIRMED
    assert verify(Evidence.SPOT, unknown, age=NOW) is Verdict.CONFIRMED


def test_a_scheduled_event_is_followed_only_if_ec2_lists_it() -> None:
    """One message may name every instance."""
    soon, late = SCHEDULE_LAG - timedelta(seconds=1), SCHEDULE_LAG
    listed = InstanceFacts(state="running", capacity_type="spot", scheduled_at=datetime(2026, 12, 1, tzinfo=UTC))
    assert verify(Evidence.SCHEDULED, listed, age=NOW) is Verdict.CONFIRMED
    assert verify(Evidence.SCHEDULED, facts("spot"), age=soon) is Verdict.PENDING
    assert verify(Evidence.SCHEDULED, facts("spot"), age=late) is Verdict.CONTRADICTED
    assert verify(Evidence.SCHEDULED, None, age=late) is Verdict.PENDING
