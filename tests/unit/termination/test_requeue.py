from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.api.meta import ObjectMeta, with_condition
from shared.api.nodeclaim import DRAINED, NodeClaim, NodeClaimStatus
from shared.termination.requeue import REQUEUE_AT, WaitReason, is_due, is_scheduled, requeue_after

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def claim(*, next_look: str | None = None, deleted: datetime = NOW) -> NodeClaim:
    annotations = {} if next_look is None else {REQUEUE_AT: next_look}
    return NodeClaim(metadata=ObjectMeta(name="c", deletion_timestamp=deleted, annotations=annotations))


def test_a_hint_before_the_next_look_is_surplus() -> None:
    assert is_due(claim(), now=NOW)
    assert not is_due(claim(next_look=(NOW + timedelta(seconds=10)).isoformat()), now=NOW)
    assert is_due(claim(next_look=NOW.isoformat()), now=NOW)


def test_a_garbled_time_doesnt_stop_a_drain() -> None:
    assert is_due(claim(next_look="tomorrow"), now=NOW)
    assert is_due(claim(next_look="2026-05-01T12:00:00"), now=NOW)


def test_a_look_that_is_planned_early_enough_needs_no_other() -> None:
    ahead = claim(next_look=(NOW + timedelta(seconds=10)).isoformat())
    assert is_scheduled(ahead, until=NOW + timedelta(seconds=10), now=NOW)
    assert not is_scheduled(ahead, until=NOW + timedelta(seconds=9), now=NOW)
    assert not is_scheduled(ahead, until=NOW + timedelta(minutes=9), now=NOW + timedelta(seconds=10))
    assert not is_scheduled(claim(), until=NOW + timedelta(minutes=9), now=NOW)
    assert not is_scheduled(claim(next_look="tomorrow"), until=NOW + timedelta(minutes=9), now=NOW)


def test_a_drain_that_a_budget_blocks_for_two_days_is_looked_at_a_bounded_number_of_times() -> None:
    blocked, looks, now = claim(), 0, NOW
    while now < NOW + timedelta(days=2):
        now += requeue_after(blocked, WaitReason.BLOCKED, latest=None, now=now)
        looks += 1
    assert looks < 350


def test_volumes_are_waited_for_since_the_last_pod_went() -> None:
    """However long pods held the drain before."""
    now = NOW + timedelta(days=2)
    held = claim()
    assert requeue_after(held, WaitReason.VOLUMES, latest=None, now=now) == timedelta(seconds=1)
    conditions = with_condition([], DRAINED, status=True, reason="Drained", now=now - timedelta(minutes=5))
    drained = replace(held, status=NodeClaimStatus(conditions=conditions))
    assert requeue_after(drained, WaitReason.VOLUMES, latest=None, now=now) == timedelta(seconds=15)
    assert requeue_after(drained, WaitReason.BLOCKED, latest=None, now=now) == timedelta(minutes=15)


@given(st.integers(0, 10_000), st.sampled_from(WaitReason), st.integers(1, 10_000))
def test_the_next_look_never_comes_after_the_deadline(waited: int, awaited: WaitReason, left: int) -> None:
    now = NOW + timedelta(seconds=waited)
    wait = requeue_after(claim(), awaited, latest=now + timedelta(seconds=left), now=now)
    assert timedelta() < wait <= timedelta(seconds=left)
    assert wait <= timedelta(seconds={WaitReason.BLOCKED: 900, WaitReason.REPLACEMENT: 10}.get(awaited, 5))
