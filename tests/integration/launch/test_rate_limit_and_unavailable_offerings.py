"""What all functions share in DynamoDB: unavailable offerings and the rate limit of CreateFleet."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from shared.base import aws, runtime
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchedInstance, LaunchFailure
from shared.instance_types import unavailable_offerings
from shared.launch.ec2_cloud_provider import read_conditions
from shared.launch.fleet.launch import RATE_LIMIT_WAIT_TIMEOUT
from shared.launch.fleet.rate_limit import BURST, REFILL, RateLimiter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.instance_types.instance_type import OfferingKey

M5 = ("spot", "m5.large", "us-east-1a")

Account = Any
"""The fixture's class: tests can't import from conftest."""


def unavailable(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> frozenset[OfferingKey]:
    return read_conditions(dynamodb, table, commitments=None, now=now).unavailable


def test_an_offering_is_unavailable_for_three_minutes(table: str) -> None:
    now = runtime.current().now()
    unavailable_offerings.mark(aws.dynamodb_with_errors(), table, [M5], reason="InsufficientInstanceCapacity", now=now)
    assert unavailable(aws.dynamodb_with_errors(), table, now=now + timedelta(seconds=179)) == {M5}
    assert unavailable(aws.dynamodb_with_errors(), table, now=now + timedelta(seconds=181)) == frozenset()


def test_marking_again_restarts_the_ttl(table: str) -> None:
    now = runtime.current().now()
    for later in (0, 100):
        unavailable_offerings.mark(
            aws.dynamodb_with_errors(), table, [M5], reason="Unsupported", now=now + timedelta(seconds=later)
        )
    assert unavailable(aws.dynamodb_with_errors(), table, now=now + timedelta(seconds=250)) == {M5}


def test_a_whole_zone_is_marked_25_offerings_a_call_and_unprocessed_items_are_retried(table: str) -> None:
    dynamodb, now = aws.dynamodb_with_errors(), runtime.current().now()
    zone = [("spot", f"m5.{i}", "us-east-1a") for i in range(60)]
    sent: list[list[Any]] = []

    def put_off_two(parsed: dict[str, Any], **_more: object) -> None:
        if len(sent) == 1:
            parsed["UnprocessedItems"] = {table: sent[0][:2]}

    def note(params: dict[str, Any], **_more: object) -> None:
        sent.append(params["RequestItems"][table])

    dynamodb.meta.events.register("provide-client-params.dynamodb.BatchWriteItem", note)
    dynamodb.meta.events.register("after-call.dynamodb.BatchWriteItem", put_off_two)
    unavailable_offerings.mark(dynamodb, table, zone, reason="InsufficientInstanceCapacity", now=now)
    assert [len(items) for items in sent] == [25, 25, 10, 2]
    assert sent[3] == sent[0][:2]
    assert unavailable(dynamodb, table, now=now) == frozenset(zone)


def test_two_functions_share_one_rate_limit(table: str) -> None:
    now = runtime.current().now()
    functions = [RateLimiter(aws.dynamodb_with_errors(), table), RateLimiter(aws.dynamodb_with_errors(), table)]
    granted = [functions[i % 2].try_acquire(now=now) for i in range(10)]
    assert sum(granted) == BURST
    later = now + timedelta(seconds=1)
    assert sum(functions[i % 2].try_acquire(now=later) for i in range(10)) == REFILL


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.moment = runtime.current().now()

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class ClockOfEachThread(threading.local):
    """A clock for each thread: one that waits doesn't let time pass for those that are about to wait too."""

    def __init__(self, start: datetime) -> None:
        self.moment = start

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def test_launches_wait_for_the_rate_limit_until_the_timeout_and_the_rest_is_throttled(
    account: Account, table: str
) -> None:
    clock = ClockOfEachThread(runtime.current().now())
    node_class, types = account.ready(), [account.instance_type("m5.large", spot=0.03)]
    claims = [account.claim(f"web-{i}", group=f"group-{i}") for i in range(30)]
    with runtime.using(with_fields(runtime.current(), now=clock.now, sleep=clock.sleep)):
        rate_limiter = RateLimiter(aws.dynamodb_with_errors(), table)
        results = account.launch(claims, types, node_class=node_class, rate_limiter=rate_limiter, now=clock.now())
    launched = [r for r in results if isinstance(r, LaunchedInstance)]
    assert len(launched) == account.fleets.calls == BURST + RATE_LIMIT_WAIT_TIMEOUT.total_seconds() * REFILL
    assert {r.kind for r in results if isinstance(r, LaunchFailure)} == {"throttled"}


def test_200_throttled_responses_stay_within_the_rate_limit_and_all_launch_in_the_end(
    account: Account, table: str
) -> None:
    clock, node_class, types = Clock(), account.ready(), [account.instance_type("m5.large", spot=0.03)]
    account.fleets.errors_to_return = [("RequestLimitExceeded", "Request limit exceeded.")] * 200
    claims = [account.claim(f"web-{i}", group=f"group-{i % 20}") for i in range(100)]
    start = clock.now()
    done: dict[str, str] = {}
    with runtime.using(with_fields(runtime.current(), now=clock.now, sleep=clock.sleep)):
        rate_limiter = RateLimiter(aws.dynamodb_with_errors(), table)
        while len(done) < len(claims):
            waiting = [c for c in claims if c.name not in done]
            results = account.launch(waiting, types, node_class=node_class, rate_limiter=rate_limiter, now=clock.now())
            done |= {r.claim_name: r.instance_id for r in results if isinstance(r, LaunchedInstance)}
            assert account.fleets.calls <= BURST + (clock.now() - start).total_seconds() * REFILL
    assert len(set(done.values())) == len(account.running()) == 100
    assert account.fleets.calls == 200 + 20
