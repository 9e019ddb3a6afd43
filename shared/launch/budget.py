"""The budget of CreateFleet calls: one token bucket a cluster, in DynamoDB, shared by all functions.

CreateFleet drains a small bucket of the whole account (reference/aws.md: about 5, refilled with 2 a second). Whoever
asks when ours is empty is told no, without a call, and waits in its queue; so retries never multiply calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.launch.finding import code

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

BURST = 5.0
REFILL = 2.0
"""Calls a second."""

_REFILL_TIME = timedelta(seconds=1 / REFILL)
_PARTITION = "budget"
_CHANGED = "ConditionalCheckFailedException"
_TRIES = 8


@dataclass(frozen=True)
class Bucket:
    """How many calls are left, as of a moment (seconds since the epoch)."""

    tokens: float
    at: float

    def refilled(self, now: float) -> Bucket:
        """The bucket at a later moment; a clock that runs behind changes nothing."""
        return Bucket(min(BURST, self.tokens + max(0.0, now - self.at) * REFILL), max(now, self.at))

    def take(self, now: float) -> Bucket | None:
        """The bucket with one call less, or None: there is none left."""
        full = self.refilled(now)
        return Bucket(full.tokens - 1, full.at) if full.tokens >= 1 else None


class Budget:
    """The bucket of one name ("CreateFleet") in the cluster's table."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, *, name: str = "CreateFleet") -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._key = {"pk": {"S": _PARTITION}, "sk": {"S": name}}

    def take_by(self, deadline: datetime, *, now: Callable[[], datetime], sleep: Callable[[float], None]) -> bool:
        """Take a call as soon as there is one, waiting for the refill, but not beyond the deadline.

        Raises:
            ClientError: DynamoDB failed.
        """
        while not self.take(now=now()):
            if now() + _REFILL_TIME > deadline:
                return False
            sleep(_REFILL_TIME.total_seconds())
        return True

    def take(self, *, now: datetime) -> bool:
        """Whether a call may be made now; if so, it is counted. Under contention that doesn't end: no.

        Raises:
            ClientError: DynamoDB failed.
        """
        moment = now.timestamp()
        for _ in range(_TRIES):
            item = self._dynamodb.get_item(TableName=self._table, Key=self._key, ConsistentRead=True).get("Item", {})
            seen = str(item["version"]["N"]) if "version" in item else ""
            before = Bucket(float(item["tokens"]["N"]), float(item["at"]["N"])) if seen else Bucket(BURST, moment)
            after = before.take(moment)
            if after is None:
                return False
            if self._write(after, seen):
                return True
        return False

    def _write(self, bucket: Bucket, seen: str) -> bool:
        values = {
            "tokens": {"N": f"{bucket.tokens:.6f}"},
            "at": {"N": f"{bucket.at:.6f}"},
            "version": {"N": str(int(seen or 0) + 1)},
        }
        try:
            if seen:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item={**self._key, **values},
                    ConditionExpression="version = :seen",
                    ExpressionAttributeValues={":seen": {"N": seen}},
                )
            else:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item={**self._key, **values},
                    ConditionExpression="attribute_not_exists(pk)",
                )
        except ClientError as error:
            if code(error) == _CHANGED:
                return False
            raise
        return True
