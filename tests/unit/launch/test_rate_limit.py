"""The token bucket of CreateFleet calls: never more than its burst and refill, in any order of calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from botocore.exceptions import EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from shared.base import runtime
from shared.base.aws import BestEffortDynamoDB
from shared.launch.fleet.rate_limit import BURST, MAX_BACKOFF, MIN_BACKOFF, REFILL, RateLimiter, TokenBucket


@given(st.lists(st.floats(0, 5, allow_nan=False), max_size=60))
def test_no_more_calls_than_burst_and_refill_allow(pauses: list[float]) -> None:
    bucket, now, calls = TokenBucket(BURST, 0), 0.0, 0
    for pause in pauses:
        now += pause
        after = bucket.take(now)
        if after is not None:
            bucket, calls = after, calls + 1
    assert calls <= BURST + now * REFILL + 1e-6


def test_an_empty_bucket_fills_again() -> None:
    bucket = TokenBucket(0, 100)
    assert bucket.take(100.1) is None
    assert bucket.take(100.5) == TokenBucket(0, 100.5)
    assert bucket.refilled(1000).tokens == BURST


def test_a_clock_that_runs_behind_gives_nothing() -> None:
    assert TokenBucket(0.5, 100).take(50) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_backoff_grows_with_each_throttling_up_to_the_maximum(shares: list[float]) -> None:
    bucket, now = TokenBucket(BURST, 0.0), 0.0
    for row, share in enumerate(shares):
        bucket = bucket.throttled(now, jitter=share)
        longest = min(MAX_BACKOFF, MIN_BACKOFF * 2**row)
        wait = next(s / 10 for s in range(1000) if bucket.take(now + s / 10) is not None)
        assert share * longest <= wait <= longest + 1 / bucket.rate + 0.1
        now += wait
        taken = bucket.take(now)
        assert taken is not None
        bucket = taken


def test_throttlings_long_apart_begin_with_the_minimum_backoff_again() -> None:
    bucket = TokenBucket(BURST, 0.0)
    for _ in range(10):
        bucket = bucket.throttled(0.0, jitter=1.0)
    assert bucket.throttled(3600.0, jitter=1.0).tokens == -MIN_BACKOFF * REFILL / 2


class Unreachable:
    """DynamoDB without an address."""

    def __getattr__(self, operation: str) -> Any:
        def call(**_request: object) -> NoReturn:
            raise EndpointConnectionError(endpoint_url="https://dynamodb")

        return call


def test_without_dynamodb_a_process_keeps_to_the_rate_by_itself() -> None:
    start = datetime(2026, 11, 26, 12, tzinfo=UTC)
    dynamodb: Any = BestEffortDynamoDB(Unreachable())  # type: ignore[arg-type]
    calls = 0
    with runtime.using(runtime.Runtime(environ={}, now=lambda: start, cache={})):
        now = start
        for second in range(30):
            now = start + timedelta(seconds=second)
            invocation = RateLimiter(dynamodb, "table", draw=lambda: 1.0)
            calls += sum(invocation.try_acquire(now=now) for _ in range(20))
        assert calls == BURST + 29 * REFILL
        RateLimiter(dynamodb, "table", draw=lambda: 1.0).throttled(now=now)
        assert not RateLimiter(dynamodb, "table").try_acquire(now=now + timedelta(seconds=MIN_BACKOFF))
