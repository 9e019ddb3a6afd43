"""The termination deadline of a NodeClaim whose instance is interrupted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.interruption.deadline import MARGIN, earlier_deadline, is_terminated_by_tenon
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TWO_MINUTES = timedelta(minutes=2)
STAMP = "karpenter.sh/nodeclaim-termination-timestamp"


def claim(*, grace: str | None = None, stamped: str | None = None, deleted: datetime | None = None) -> NodeClaim:
    annotations = {} if stamped is None else {STAMP: stamped}
    return NodeClaim(
        metadata=ObjectMeta(name="c", annotations=annotations, deletion_timestamp=deleted),
        spec=NodeClaimSpec(termination_grace_period=grace),
    )


def test_the_deadline_is_shortly_before_the_interruption_and_within_110_seconds() -> None:
    assert earlier_deadline(claim(), NOW + TWO_MINUTES, now=NOW) == NOW + TWO_MINUTES - MARGIN
    assert timedelta(seconds=10) <= MARGIN < timedelta(seconds=30)


def test_a_termination_grace_period_that_ends_sooner_is_honoured() -> None:
    assert earlier_deadline(claim(grace="30s"), NOW + TWO_MINUTES, now=NOW) == NOW + timedelta(seconds=30)
    deleted = NOW - timedelta(seconds=20)
    assert earlier_deadline(claim(grace="30s", deleted=deleted), NOW + TWO_MINUTES, now=NOW) == NOW + timedelta(
        seconds=10
    )


def test_a_later_deadline_is_moved_forward_and_an_earlier_one_is_kept() -> None:
    later, sooner = (NOW + timedelta(hours=1)).isoformat(), (NOW + timedelta(seconds=5)).isoformat()
    assert earlier_deadline(claim(stamped=later), NOW + TWO_MINUTES, now=NOW) == NOW + TWO_MINUTES - MARGIN
    assert earlier_deadline(claim(stamped=sooner), NOW + TWO_MINUTES, now=NOW) is None


@pytest.mark.parametrize("text", ["soon", "", "2026-01-01T12:00:00"])
def test_an_invalid_deadline_is_replaced(text: str) -> None:
    assert earlier_deadline(claim(stamped=text), NOW + TWO_MINUTES, now=NOW) is not None


@given(seconds=st.integers(-600, 600))
def test_a_repeated_warning_does_not_change_the_deadline(seconds: int) -> None:
    by = NOW + timedelta(seconds=seconds)
    moment = earlier_deadline(claim(), by, now=NOW)
    assert moment is not None
    assert earlier_deadline(claim(stamped=moment.isoformat(), deleted=NOW), by, now=NOW) is None


def test_an_instance_that_tenon_terminated_is_recognised() -> None:
    terminating = Condition(type="InstanceTerminating", status="True", reason="x", last_transition_time=NOW)
    going = NodeClaim(
        metadata=ObjectMeta(name="c", deletion_timestamp=NOW), status=NodeClaimStatus(conditions=[terminating])
    )
    assert is_terminated_by_tenon(going)
    assert not is_terminated_by_tenon(claim(deleted=NOW))
