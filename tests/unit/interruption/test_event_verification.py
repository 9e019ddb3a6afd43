"""What EC2 says about a machine decides what is made of an event that names it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from functions.interruption.event_verification import STATE_LAG, InstanceFacts, Verdict, verify
from functions.interruption.messages.notice import Evidence

NOW = timedelta()
TAKEN = "instance-terminated-no-capacity"


def seen(bought: str, *, state: str = "running", status: str = "") -> InstanceFacts:
    return InstanceFacts(state=state, capacity_type=bought, spot_status=status)


@pytest.mark.parametrize("evidence", Evidence)
def test_without_an_answer_every_event_is_believed(evidence: Evidence) -> None:
    assert verify(evidence, None, age=NOW) is Verdict.CONFIRMED


@pytest.mark.parametrize("evidence", Evidence)
@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
@pytest.mark.parametrize("bought", ["spot", "on-demand", "reserved"])
def test_what_no_longer_runs_goes_whatever_the_event_called_it(evidence: Evidence, state: str, bought: str) -> None:
    assert verify(evidence, seen(bought, state=state, status="fulfilled"), age=NOW) is Verdict.CONFIRMED


@pytest.mark.parametrize("evidence", [Evidence.SPOT, Evidence.SPOT_INTERRUPTED])
@pytest.mark.parametrize("bought", ["on-demand", "reserved"])
def test_spot_events_are_false_of_what_was_not_bought_as_spot(evidence: Evidence, bought: str) -> None:
    assert verify(evidence, seen(bought), age=NOW) is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    "status", [TAKEN, "instance-terminated-by-price", "marked-for-termination", "marked-for-stop", "", "anything-new"]
)
def test_only_a_spot_request_that_is_still_fulfilled_leaves_a_warning_unconfirmed(status: str) -> None:
    assert verify(Evidence.SPOT_INTERRUPTED, seen("spot", status=status), age=NOW) is Verdict.CONFIRMED
    assert verify(Evidence.SPOT_INTERRUPTED, seen("spot", status="fulfilled"), age=NOW) is Verdict.UNCONFIRMED


def test_a_recommendation_needs_a_spot_instance_and_no_status() -> None:
    assert verify(Evidence.SPOT, seen("spot", status="fulfilled"), age=NOW) is Verdict.CONFIRMED


def test_a_reservation_is_reclaimed_from_those_that_run_in_one() -> None:
    assert verify(Evidence.RESERVED, seen("reserved"), age=NOW) is Verdict.CONFIRMED
    assert verify(Evidence.RESERVED, seen("on-demand"), age=NOW) is Verdict.UNCONFIRMED
    assert verify(Evidence.RESERVED, seen("spot"), age=NOW) is Verdict.CONTRADICTED


def test_a_machine_that_is_said_to_stop_may_take_a_moment_to_be_seen_stopping() -> None:
    assert verify(Evidence.NOT_RUNNING, seen("spot"), age=STATE_LAG - timedelta(seconds=1)) is Verdict.PENDING
    assert verify(Evidence.NOT_RUNNING, seen("spot"), age=STATE_LAG) is Verdict.CONTRADICTED
