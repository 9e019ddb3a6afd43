"""How often EC2 interrupts the instances of a pool: counted by the interruption function, read by launches."""

from __future__ import annotations

from datetime import timedelta

import pytest

from functions.interruption.interruption_records import PoolNotices, add
from shared import aws, runtime
from shared.instance_types.interruption_rates import DEFAULT_RATE, RETENTION, current, rate

M5 = ("m5.large", "us-east-1a")
C5 = ("c5.large", "us-east-1b")


def notices(pool: tuple[str, str], count: int, *, interrupted: float, running: float) -> PoolNotices:
    return PoolNotices(pool=pool, notices=count, interrupted_hours=interrupted, running_hours=running)


def test_notices_add_up_and_running_hours_are_counted_once(table: str) -> None:
    now = runtime.current().now()
    add(aws.dynamodb(), table, [notices(M5, 2, interrupted=10, running=90)], now=now)
    add(
        aws.dynamodb(),
        table,
        [notices(M5, 1, interrupted=8, running=95), notices(C5, 1, interrupted=1, running=0)],
        now=now,
    )
    rates = current(aws.dynamodb(), table, now=now)
    assert rates == {M5: pytest.approx(rate(3, 18 + 95)), C5: pytest.approx(rate(1, 1))}


def test_a_pool_without_notices_for_a_week_has_the_default_rate_again(table: str) -> None:
    now = runtime.current().now()
    add(aws.dynamodb(), table, [notices(M5, 2, interrupted=10, running=90)], now=now)
    assert M5 in current(aws.dynamodb(), table, now=now + RETENTION - timedelta(seconds=1))
    assert current(aws.dynamodb(), table, now=now + RETENTION) == {}


def test_the_rate_goes_from_the_default_to_what_is_seen() -> None:
    assert rate(0, 0) == DEFAULT_RATE
    assert rate(100, 10_000) == pytest.approx(0.01, rel=0.1)
    assert rate(1, 0) > rate(1, 500) > DEFAULT_RATE > rate(0, 500)
