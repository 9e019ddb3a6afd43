"""The bucket of CreateFleet calls: never more than its burst and refill, whatever the order of asking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.launch.budget import BURST, REFILL, Bucket


@given(st.lists(st.floats(0, 5, allow_nan=False), max_size=60))
def test_no_more_calls_than_burst_and_refill_allow(pauses: list[float]) -> None:
    bucket, now, calls = Bucket(BURST, 0), 0.0, 0
    for pause in pauses:
        now += pause
        after = bucket.take(now)
        if after is not None:
            bucket, calls = after, calls + 1
    assert calls <= BURST + now * REFILL + 1e-6


def test_an_empty_bucket_fills_again() -> None:
    bucket = Bucket(0, 100)
    assert bucket.take(100.1) is None
    assert bucket.take(100.5) == Bucket(0, 100.5)
    assert bucket.refilled(1000).tokens == BURST


def test_a_clock_that_runs_behind_gives_nothing() -> None:
    assert Bucket(0.5, 100).take(50) is None
