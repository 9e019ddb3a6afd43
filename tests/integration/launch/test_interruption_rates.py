"""How often EC2 interrupts the instances of a pool: counted by the interruption function, read by launches."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from functions.interruption.interruption_records import PoolNotices, add
from shared.base import aws, runtime
from shared.instance_types.interruption_rates import DEFAULT_RATE, HALF_LIFE, RETENTION, Pool, rate
from shared.launch.ec2_cloud_provider import read_conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_dynamodb import DynamoDBClient

M5 = ("m5.large", "us-east-1a")
C5 = ("c5.large", "us-east-1b")


def notices(pool: tuple[str, str], count: int, *, interrupted: float, running: float) -> PoolNotices:
    return PoolNotices(pool=pool, notices=count, interrupted_hours=interrupted, running_hours=running)


def current(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> Mapping[Pool, float]:
    return read_conditions(dynamodb, table, commitments=None, now=now).interruption_rates


def test_notices_add_up_and_running_hours_are_counted_once(table: str) -> None:
    now = runtime.current().now()
    add(aws.dynamodb_with_errors(), table, [notices(M5, 2, interrupted=10, running=90)], now=now)
    add(
        aws.dynamodb_with_errors(),
        table,
        [notices(M5, 1, interrupted=8, running=95), notices(C5, 1, interrupted=1, running=0)],
        now=now,
    )
    rates = current(aws.dynamodb_with_errors(), table, now=now)
    assert rates == {M5: pytest.approx(rate(3, 18 + 95)), C5: pytest.approx(rate(1, 1))}


def test_notices_count_half_after_each_half_life_until_they_are_forgotten(table: str) -> None:
    now = runtime.current().now()
    add(aws.dynamodb_with_errors(), table, [notices(M5, 2, interrupted=10, running=90)], now=now)
    for halved in (1, 2, 4):
        later = current(aws.dynamodb_with_errors(), table, now=now + halved * HALF_LIFE)
        assert later == {M5: pytest.approx(rate(2 / 2**halved, 100 / 2**halved), rel=1e-6)}
    assert M5 in current(aws.dynamodb_with_errors(), table, now=now + RETENTION - timedelta(seconds=1))
    assert current(aws.dynamodb_with_errors(), table, now=now + RETENTION) == {}


def test_new_notices_are_added_to_what_is_left_of_the_earlier_ones(table: str) -> None:
    now = runtime.current().now()
    add(aws.dynamodb_with_errors(), table, [notices(M5, 8, interrupted=40, running=90)], now=now)
    later = now + HALF_LIFE
    add(aws.dynamodb_with_errors(), table, [notices(M5, 1, interrupted=5, running=60)], now=later)
    assert current(aws.dynamodb_with_errors(), table, now=later) == {
        M5: pytest.approx(rate(4 + 1, 20 + 5 + 60), rel=1e-6)
    }


def test_rates_change_by_the_hour(table: str) -> None:
    now = runtime.current().now()
    add(aws.dynamodb_with_errors(), table, [notices(M5, 2, interrupted=10, running=90)], now=now)
    read = [current(aws.dynamodb_with_errors(), table, now=now + timedelta(minutes=m)) for m in (60, 119, 120)]
    assert read[0] == read[1] != read[2]


def test_notices_of_two_invocations_at_once_all_count(table: str) -> None:
    """The second has read the row before the first wrote: it adds its notices without aging the row again."""
    now = runtime.current().now()
    add(aws.dynamodb_with_errors(), table, [notices(M5, 8, interrupted=40, running=90)], now=now)
    later = now + HALF_LIFE
    seen: list[int] = []

    def write_between(**_: object) -> None:
        if not seen:
            seen.append(1)
            add(aws.dynamodb_with_errors(), table, [notices(M5, 1, interrupted=5, running=60)], now=later)

    aws.dynamodb_with_errors().meta.events.register("before-call.dynamodb.UpdateItem", write_between)
    add(aws.dynamodb_with_errors(), table, [notices(M5, 2, interrupted=3, running=60)], now=later)
    expected = rate(4 + 1 + 2, 20 + 5 + 3 + 60)
    assert current(aws.dynamodb_with_errors(), table, now=later) == {M5: pytest.approx(expected, rel=1e-6)}


def test_the_rate_goes_from_the_default_to_what_is_seen() -> None:
    assert rate(0, 0) == DEFAULT_RATE
    assert rate(100, 10_000) == pytest.approx(0.01, rel=0.1)
    assert rate(1, 0) > rate(1, 500) > DEFAULT_RATE > rate(0, 500)
