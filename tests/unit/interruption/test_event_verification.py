"""What EC2 says about a machine decides what is made of an event that names it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from functions.interruption.event_verification import SETTLED, Seen, Verdict, weigh
from functions.interruption.messages.notice import Basis

NOW = timedelta()
TAKEN = "instance-terminated-no-capacity"


def seen(bought: str, *, state: str = "running", status: str = "") -> Seen:
    return Seen(state=state, capacity_type=bought, spot_status=status)


@pytest.mark.parametrize("basis", Basis)
def test_without_an_answer_every_event_is_believed(basis: Basis) -> None:
    assert weigh(basis, None, age=NOW) is Verdict.TRUE


@pytest.mark.parametrize("basis", Basis)
@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
@pytest.mark.parametrize("bought", ["spot", "on-demand", "reserved"])
def test_what_no_longer_runs_goes_whatever_the_event_called_it(basis: Basis, state: str, bought: str) -> None:
    assert weigh(basis, seen(bought, state=state, status="fulfilled"), age=NOW) is Verdict.TRUE


@pytest.mark.parametrize("basis", [Basis.SPOT, Basis.SPOT_TAKEN])
@pytest.mark.parametrize("bought", ["on-demand", "reserved"])
def test_spot_events_are_false_of_what_was_not_bought_as_spot(basis: Basis, bought: str) -> None:
    assert weigh(basis, seen(bought), age=NOW) is Verdict.FALSE


@pytest.mark.parametrize(
    "status", [TAKEN, "instance-terminated-by-price", "marked-for-termination", "marked-for-stop", "", "anything-new"]
)
def test_only_a_spot_request_that_is_still_fulfilled_leaves_a_warning_unconfirmed(status: str) -> None:
    assert weigh(Basis.SPOT_TAKEN, seen("spot", status=status), age=NOW) is Verdict.TRUE
    assert weigh(Basis.SPOT_TAKEN, seen("spot", status="fulfilled"), age=NOW) is Verdict.UNCONFIRMED


def test_a_recommendation_needs_a_spot_instance_and_no_status() -> None:
    assert weigh(Basis.SPOT, seen("spot", status="fulfilled"), age=NOW) is Verdict.TRUE


def test_a_reservation_is_reclaimed_from_those_that_run_in_one() -> None:
    assert weigh(Basis.RESERVED, seen("reserved"), age=NOW) is Verdict.TRUE
    assert weigh(Basis.RESERVED, seen("on-demand"), age=NOW) is Verdict.UNCONFIRMED
    assert weigh(Basis.RESERVED, seen("spot"), age=NOW) is Verdict.FALSE


def test_a_machine_that_is_said_to_stop_may_take_a_moment_to_be_seen_stopping() -> None:
    assert weigh(Basis.STOPPING, seen("spot"), age=SETTLED - timedelta(seconds=1)) is Verdict.NOT_YET
    assert weigh(Basis.STOPPING, seen("spot"), age=SETTLED) is Verdict.FALSE
