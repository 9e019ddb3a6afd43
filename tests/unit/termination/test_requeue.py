from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.api.meta import ObjectMeta, with_condition
from shared.api.nodeclaim import DRAINED, INSTANCE_TERMINATING, NodeClaim, NodeClaimStatus
from shared.base.struct import with_fields
from shared.termination.requeue import REQUEUE_AT, WaitReason, is_due, is_scheduled, requeue_after

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def claim(*, requeue_time: str | None = None, deleted: datetime = NOW) -> NodeClaim:
    annotations = {} if requeue_time is None else {REQUEUE_AT: requeue_time}
    return NodeClaim(metadata=ObjectMeta(name="c", deletion_timestamp=deleted, annotations=annotations))


def test_messages_before_the_requeue_time_are_ignored() -> None:
    assert is_due(claim(), now=NOW)
    assert not is_due(claim(requeue_time=(NOW + timedelta(seconds=10)).isoformat()), now=NOW)
    assert is_due(claim(requeue_time=NOW.isoformat()), now=NOW)


def test_an_invalid_requeue_time_does_not_stop_a_drain() -> None:
    assert is_due(claim(requeue_time="tomorrow"), now=NOW)
    assert is_due(claim(requeue_time="2026-05-01T12:00:00"), now=NOW)


def test_a_requeue_that_is_scheduled_early_enough_needs_no_other() -> None:
    ahead = claim(requeue_time=(NOW + timedelta(seconds=10)).isoformat())
    assert is_scheduled(ahead, until=NOW + timedelta(seconds=10), now=NOW)
    assert not is_scheduled(ahead, until=NOW + timedelta(seconds=9), now=NOW)
    assert not is_scheduled(ahead, until=NOW + timedelta(minutes=9), now=NOW + timedelta(seconds=10))
    assert not is_scheduled(claim(), until=NOW + timedelta(minutes=9), now=NOW)
    assert not is_scheduled(claim(requeue_time="tomorrow"), until=NOW + timedelta(minutes=9), now=NOW)


def test_a_drain_blocked_for_two_days_is_reconciled_a_bounded_number_of_times() -> None:
    blocked, reconciles, now = claim(), 0, NOW
    while now < NOW + timedelta(days=2):
        now += requeue_after(blocked, WaitReason.BLOCKED, latest=None, now=now)
        reconciles += 1
    assert reconciles < 350


def test_the_wait_for_volumes_counts_from_the_end_of_the_drain() -> None:
    """However long the drain took."""
    now = NOW + timedelta(days=2)
    draining = claim()
    assert requeue_after(draining, WaitReason.VOLUMES, latest=None, now=now) == timedelta(seconds=1)
    conditions = with_condition(
        [], DRAINED, status=True, reason="Drained", now=now - timedelta(minutes=5), generation=1
    )
    drained = with_fields(draining, status=NodeClaimStatus(conditions=conditions))
    assert requeue_after(drained, WaitReason.VOLUMES, latest=None, now=now) == timedelta(seconds=15)
    assert requeue_after(drained, WaitReason.BLOCKED, latest=None, now=now) == timedelta(minutes=15)


def test_an_instance_that_ec2_refuses_to_terminate_is_tried_a_bounded_number_of_times() -> None:
    """However long ago the NodeClaim was deleted: the waits grow from the first refusal on."""
    tries, refused = [NOW], claim(deleted=NOW - timedelta(days=1))
    conditions = with_condition(
        [], INSTANCE_TERMINATING, status=False, reason="TerminationRefused", now=NOW, generation=1
    )
    while tries[-1] < NOW + timedelta(days=1):
        tries.append(tries[-1] + requeue_after(refused, WaitReason.REFUSED, latest=None, now=tries[-1]))
        refused = with_fields(refused, status=NodeClaimStatus(conditions=conditions))
    assert tries[1] == NOW + timedelta(seconds=10)
    assert len([t for t in tries if t <= NOW + timedelta(hours=1)]) < 30
    assert len(tries) < 130
    assert tries[-1] - tries[-2] == timedelta(minutes=15)


@given(st.integers(0, 10_000), st.sampled_from(WaitReason), st.integers(1, 10_000))
def test_the_requeue_time_is_never_after_the_deadline(waited: int, reason: WaitReason, left: int) -> None:
    now = NOW + timedelta(seconds=waited)
    wait = requeue_after(claim(), reason, latest=now + timedelta(seconds=left), now=now)
    assert timedelta() < wait <= timedelta(seconds=left)
    assert wait <= timedelta(minutes=15)


def reconciles(reason: WaitReason, *, ends_after: float) -> list[int]:
    """The seconds at which something that ends after that many seconds is reconciled, until it has ended."""
    terminating = with_condition(
        [], INSTANCE_TERMINATING, status=True, reason="InstanceTerminating", now=NOW, generation=1
    )
    waiting = with_fields(claim(), status=NodeClaimStatus(conditions=terminating))
    seconds = [0]
    while seconds[-1] < ends_after:
        now = NOW + timedelta(seconds=seconds[-1])
        latest = NOW + timedelta(seconds=ends_after + 1) if reason is WaitReason.PODS else None
        wait = requeue_after(waiting, reason, latest=latest, now=now, pods_evicted_at=NOW)
        seconds.append(seconds[-1] + int(wait.total_seconds()))
    return seconds[1:]


def test_pods_that_use_their_grace_and_a_slow_shutdown_take_few_messages() -> None:
    assert reconciles(WaitReason.PODS, ends_after=40) == [2, 4, 8, 16, 31, 41]
    assert reconciles(WaitReason.INSTANCE, ends_after=60) == [5, 10, 20, 40, 70]
    assert len(reconciles(WaitReason.PODS, ends_after=3600)) < 50
