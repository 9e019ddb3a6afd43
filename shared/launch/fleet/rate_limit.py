"""The rate limit of CreateFleet calls: a token bucket for each cluster, in DynamoDB, shared by all functions.

CreateFleet has a small token bucket for the whole account (docs/facts/aws.md: about 5, refilled with 2 a second). When
ours is empty, no call is made and the work waits in its queue, so retries never multiply calls. When EC2 throttles, no
function calls for a time that doubles with each throttling and is drawn at random (AWS's full jitter).

Other clusters of the account call too, without knowing of one another. So each throttling halves the rate at which the
bucket is refilled, and time raises it again: additive increase and multiplicative decrease, by which senders come to
equal shares of what they share (Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for Congestion
Avoidance", 1989). One that launches all the time leaves calls to one that launches once an hour
(``bench/fleet_rate.py``).

While DynamoDB can't be read or written, each process has a bucket of its own, which begins as the shared one was last
read: a few processes launch at a time, so the account's bucket is not exceeded by much, and EC2's refusals are noted.
"""

from __future__ import annotations

import random
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.base import runtime
from shared.base.aws import error_code
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

BURST = 5.0
REFILL = 2.0
"""Calls a second."""

MIN_BACKOFF, MAX_BACKOFF = 0.5, 8.0
"""Upper bounds, in seconds, of the random backoff: after the first throttling, and after many in a row."""
MIN_RATE = 1 / 8
"""Calls a second after many throttlings."""
RATE_GROWTH = REFILL / 600
"""Calls a second that each second adds to the rate, so that it is whole again after at most ten minutes."""
_BACKOFF_RESET_SECONDS = 60.0
"""Throttlings less than this many seconds apart are in a row."""

_REFILL_TIME = timedelta(seconds=1 / REFILL)
_PARTITION = "budget"
_CONFLICT = "ConditionalCheckFailedException"
_MAX_CONFLICTS = 8


class TokenBucket(Struct):
    """The calls left as of a moment (seconds since the epoch); below zero during a backoff.

    ``throttlings`` is how often EC2 throttled in a row, the last time at ``throttled_at``. ``rate`` is how many calls a
    second it is refilled with at that moment.
    """

    tokens: float
    at: float
    throttlings: int = 0
    throttled_at: float = 0.0
    rate: float = REFILL

    def refilled(self, now: float) -> TokenBucket:
        """The bucket at a later moment; a clock that runs behind changes nothing."""
        seconds = max(0.0, now - self.at)
        tokens = min(BURST, self.tokens + seconds * self.rate)
        return with_fields(
            self, tokens=tokens, at=self.at + seconds, rate=min(REFILL, self.rate + seconds * RATE_GROWTH)
        )

    def take(self, now: float) -> TokenBucket | None:
        """The bucket with one call less, or None if it has none left."""
        refilled = self.refilled(now)
        return with_fields(refilled, tokens=refilled.tokens - 1) if refilled.tokens >= 1 else None

    def throttled(self, now: float, *, jitter: float) -> TokenBucket:
        """The bucket after EC2 throttled a call: refilled at half the rate.

        It stays empty for ``jitter`` (0 to 1) of a time that doubles each time.
        """
        refilled = self.refilled(now)
        in_a_row = refilled.throttlings if now - refilled.throttled_at < _BACKOFF_RESET_SECONDS else 0
        backoff = jitter * min(MAX_BACKOFF, MIN_BACKOFF * 2 ** min(in_a_row, 16))
        rate = max(MIN_RATE, refilled.rate / 2)
        tokens = min(refilled.tokens, 0.0) - backoff * rate
        return with_fields(refilled, tokens=tokens, throttlings=in_a_row + 1, throttled_at=now, rate=rate)


class RateLimiter:
    """The bucket of one API operation in the cluster's table."""

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table: str,
        *,
        operation: str = "CreateFleet",
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._draw = draw
        self._lock = Lock()  # so that the launches of one run, in threads, don't conflict with one another
        self._key = {"pk": {"S": _PARTITION}, "sk": {"S": operation}}
        self._cache_key = f"rate-limit:{operation}"

    def acquire(self, deadline: datetime, *, now: Callable[[], datetime], sleep: Callable[[float], None]) -> bool:
        """Take a call, waiting for the refill until the deadline; whether there was one.

        Raises:
            ClientError: DynamoDB failed.
        """
        while not self.try_acquire(now=now()):
            if now() + _REFILL_TIME > deadline:
                return False
            sleep(_REFILL_TIME.total_seconds())
        return True

    def try_acquire(self, *, now: datetime) -> bool:
        """Take a call if there is one; False also if other functions keep changing the bucket.

        Raises:
            ClientError: DynamoDB failed.
        """
        return self._change(lambda bucket: bucket.take(now.timestamp()), now)

    def throttled(self, *, now: datetime) -> None:
        """EC2 throttled a call: no function calls for a while.

        Raises:
            ClientError: DynamoDB failed.
        """
        jitter = self._draw()
        self._change(lambda bucket: bucket.throttled(now.timestamp(), jitter=jitter), now)

    def _change(self, change: Callable[[TokenBucket], TokenBucket | None], now: datetime) -> bool:
        with self._lock:
            return self._change_alone(change, now)

    def _change_alone(self, change: Callable[[TokenBucket], TokenBucket | None], now: datetime) -> bool:
        for _ in range(_MAX_CONFLICTS):
            item = self._dynamodb.get_item(TableName=self._table, Key=self._key, ConsistentRead=True).get("Item", {})
            version = str(item["version"]["N"]) if "version" in item else ""
            changed = change(_bucket(item) if version else self._own_bucket(now))
            if changed is None:
                return False
            if self._write(changed, version):
                runtime.current().cache[self._cache_key] = changed
                return True
        return False

    def _own_bucket(self, now: datetime) -> TokenBucket:
        """The bucket of this process, for when the table has none or doesn't answer; full in a new process."""
        bucket: TokenBucket | None = runtime.current().cache.get(self._cache_key)
        return bucket or TokenBucket(BURST, now.timestamp())

    def _write(self, bucket: TokenBucket, version: str) -> bool:
        values = {
            "tokens": {"N": f"{bucket.tokens:.6f}"},
            "at": {"N": f"{bucket.at:.6f}"},
            "refusals": {"N": str(bucket.throttlings)},
            "refused_at": {"N": f"{bucket.throttled_at:.6f}"},
            "rate": {"N": f"{bucket.rate:.6f}"},
            "version": {"N": str(int(version or 0) + 1)},
        }
        try:
            if version:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item={**self._key, **values},
                    ConditionExpression="version = :read",
                    ExpressionAttributeValues={":read": {"N": version}},
                )
            else:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item={**self._key, **values},
                    ConditionExpression="attribute_not_exists(pk)",
                )
        except ClientError as error:
            if error_code(error) == _CONFLICT:
                return False
            raise
        return True


def _bucket(item: Mapping[str, AttributeValueTypeDef]) -> TokenBucket:
    def number(name: str, missing: float = 0.0) -> float:
        return float(item[name]["N"]) if name in item else missing

    return TokenBucket(
        number("tokens"), number("at"), int(number("refusals")), number("refused_at"), number("rate", REFILL)
    )
