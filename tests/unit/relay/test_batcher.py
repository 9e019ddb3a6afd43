"""When hints are sent, and how they are packed into calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from relay.batcher import MAX_BACKOFF, MAX_BYTES, MAX_ENTRIES, Batcher, entries, put_events_batches
from shared.base import hints

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_hints_are_sent_after_the_idle_duration(start: datetime) -> None:
    batches = Batcher()
    batches.add("A", ["x"], start)
    batches.add("A", ["y", "x"], start + SECOND / 2)
    assert batches.take(start + SECOND) == {}
    assert batches.due() == start + SECOND * 1.5
    assert batches.take(start + SECOND * 1.5) == {"A": ("x", "y")}
    assert batches.due() is None


def test_hints_are_sent_after_the_max_duration_at_the_latest(start: datetime) -> None:
    batches = Batcher()
    for i in range(100):
        batches.add("A", [str(i)], start + i * SECOND / 2)
        if batches.take(start + i * SECOND / 2):
            assert i == 20
            return
    raise AssertionError("never sent")


def test_hints_about_nodes_are_sent_after_a_second_at_the_latest(start: datetime) -> None:
    batches = Batcher()
    for i in range(5):
        batches.add(hints.NODES_CHANGED, [f"n{i}"], start + i * SECOND / 5)
    assert batches.due() == start + SECOND
    assert batches.take(start + SECOND) == {hints.NODES_CHANGED: ("n0", "n1", "n2", "n3", "n4")}


def test_hints_about_deleted_nodeclaims_are_sent_together_within_a_fraction_of_a_second(start: datetime) -> None:
    batches = Batcher()
    for i in range(3):
        batches.add(hints.NODE_CLAIMS_DELETING, [f"c{i}"], start + i * SECOND / 10)
    assert batches.due() == start + SECOND * 0.4
    for i in range(3, 20):
        batches.add(hints.NODE_CLAIMS_DELETING, [f"c{i}"], start + i * SECOND / 10)
    assert batches.due() == start + SECOND


def test_each_type_of_hint_is_batched_separately(start: datetime) -> None:
    batches = Batcher()
    batches.add("A", ["x"], start)
    batches.add("B", ["y"], start + SECOND / 2)
    assert batches.take(start + SECOND) == {"A": ("x",)}
    assert batches.due() == start + SECOND * 1.5


def test_rejected_keys_are_sent_again_with_exponential_backoff(start: datetime) -> None:
    batches = Batcher()
    now = start
    waits = []
    batches.add("A", ["x"], now)
    for _ in range(9):
        due = batches.due()
        assert due is not None
        waits.append(due - now)
        now = due
        taken = batches.take(now)
        assert taken == {"A": ("x",)}
        batches.failed(taken, now)
    assert waits[1:] == [min(SECOND * 2**i, MAX_BACKOFF) for i in range(8)]
    batches.take(now, flush=True)
    batches.sent()
    batches.add("A", ["x"], now)
    assert batches.due() == now + SECOND


def test_pending_keys_are_bounded_by_the_objects_while_the_bus_is_unreachable(start: datetime) -> None:
    batches = Batcher()
    for i in range(1000):
        batches.add("A", [f"pod-{i % 10}"], start + i * SECOND)
    assert len(batches) == 10


@given(st.dictionaries(st.sampled_from(["A", "B", "C"]), st.sets(st.text(min_size=1, max_size=250), max_size=350)))
def test_every_key_is_in_one_entry_and_no_call_exceeds_the_limits(waiting: dict[str, set[str]]) -> None:
    keys = {about: tuple(sorted(waiting_keys)) for about, waiting_keys in waiting.items()}
    packed = list(put_events_batches(entries(keys, cluster="demo", bus="tenon-demo", now=NOON)))
    for group in packed:
        assert 1 <= len(group) <= MAX_ENTRIES
        assert sum(entry.size for entry in group) <= MAX_BYTES
        assert all(1 <= len(entry.keys) <= hints.MAX_KEYS for entry in group)
    assert sorted((o.detail_type, key) for g in packed for o in g for key in o.keys) == sorted(
        (about, key) for about, waiting_keys in waiting.items() for key in waiting_keys
    )
