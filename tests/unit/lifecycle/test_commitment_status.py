"""Condition CommitmentsReady of a NodePool, which exists only where commitments count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from functions.lifecycle.statuses.commitment_status import conditions
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodepool import NodePool, NodePoolStatus
from shared.commitments.commitment import Commitments

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
READY = Condition(type="Ready", status="True", reason="Ready", last_transition_time=NOW, observed_generation=3)
READ = Commitments(fetched_at=NOW)
DENIED = Commitments(fetched_at=NOW, problem="Savings Plans aren't read: no permission")


def pool(*before: Condition) -> NodePool:
    return NodePool(metadata=ObjectMeta(name="default", generation=3), status=NodePoolStatus(conditions=[*before]))


def ready(status: str, *, since: datetime = NOW, message: str = "") -> Condition:
    reason = "CommitmentsRead" if status == "True" else "CommitmentsNotRead"
    return Condition(
        type="CommitmentsReady",
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=3,
    )


def test_it_is_true_when_all_commitments_were_read() -> None:
    assert conditions(pool(READY), READ, now=NOW) == [READY, ready("True")]


def test_it_says_why_commitments_could_not_be_read() -> None:
    later = NOW + timedelta(hours=1)
    after = conditions(pool(READY, ready("True")), DENIED, now=later)
    assert after == [READY, ready("False", since=later, message="Savings Plans aren't read: no permission")]


def test_nothing_changes_while_it_stays() -> None:
    before = [ready("True"), READY]
    assert conditions(pool(*before), READ, now=NOW + timedelta(hours=1)) == before


def test_it_goes_when_commitments_no_longer_count() -> None:
    assert conditions(pool(READY, ready("False")), None, now=NOW) == [READY]
    assert conditions(pool(READY), None, now=NOW) == [READY]
