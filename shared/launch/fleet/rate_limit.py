"""The budget of CreateFleet calls: one token bucket a cluster, in DynamoDB, shared by all functions.

CreateFleet drains a small bucket of the whole account (docs/facts/aws.md: about 5, refilled with 2 a second). Whoever
asks when ours is empty is told no, without a call, and waits in its queue; so retries never multiply calls. When EC2
itself says that there are too many, all wait for a while that doubles and is drawn at random (AWS's full jitter).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.launch.node_class.selector_terms import code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

BURST = 5.0
REFILL = 2.0
"""Calls a second."""

SHORTEST_WAIT, LONGEST_WAIT = 0.5, 8.0
"""Bounds, in seconds, of the longest that may be drawn: after the first refusal, and after many in a row."""
_ROW = 60.0
"""Refusals that are less than so many seconds apart are in a row."""

_REFILL_TIME = timedelta(seconds=1 / REFILL)
_PARTITION = "budget"
_CHANGED = "ConditionalCheckFailedException"
_TRIES = 8


@dataclass(frozen=True)
class Bucket:
    """How many calls are left, as of a moment (seconds since the epoch); below zero while EC2 wants to be left alone.

    ``refusals`` of EC2 came in a row, the last one at ``refused_at``.
    """

    tokens: float
    at: float
    refusals: int = 0
    refused_at: float = 0.0

    def refilled(self, now: float) -> Bucket:
        """The bucket at a later moment; a clock that runs behind changes nothing."""
        tokens = min(BURST, self.tokens + max(0.0, now - self.at) * REFILL)
        return replace(self, tokens=tokens, at=max(now, self.at))

    def take(self, now: float) -> Bucket | None:
        """The bucket with one call less, or None: there is none left."""
        full = self.refilled(now)
        return replace(full, tokens=full.tokens - 1) if full.tokens >= 1 else None

    def refuse(self, now: float, *, share: float) -> Bucket:
        """The bucket after EC2 refused a call: empty, for a ``share`` (0 to 1) of a time that doubles each time."""
        full = self.refilled(now)
        row = full.refusals if now - full.refused_at < _ROW else 0
        wait = share * min(LONGEST_WAIT, SHORTEST_WAIT * 2 ** min(row, 16))
        return replace(full, tokens=min(full.tokens, 0.0) - wait * REFILL, refusals=row + 1, refused_at=now)


class Budget:
    """The bucket of one name ("CreateFleet") in the cluster's table."""

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table: str,
        *,
        name: str = "CreateFleet",
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._draw = draw
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
        return self._change(lambda bucket: bucket.take(now.timestamp()), now)

    def refused(self, *, now: datetime) -> None:
        """EC2 said that there are too many calls: nobody makes one for a while.

        Raises:
            ClientError: DynamoDB failed.
        """
        share = self._draw()
        self._change(lambda bucket: bucket.refuse(now.timestamp(), share=share), now)

    def _change(self, change: Callable[[Bucket], Bucket | None], now: datetime) -> bool:
        for _ in range(_TRIES):
            item = self._dynamodb.get_item(TableName=self._table, Key=self._key, ConsistentRead=True).get("Item", {})
            seen = str(item["version"]["N"]) if "version" in item else ""
            after = change(_bucket(item) if seen else Bucket(BURST, now.timestamp()))
            if after is None:
                return False
            if self._write(after, seen):
                return True
        return False

    def _write(self, bucket: Bucket, seen: str) -> bool:
        values = {
            "tokens": {"N": f"{bucket.tokens:.6f}"},
            "at": {"N": f"{bucket.at:.6f}"},
            "refusals": {"N": str(bucket.refusals)},
            "refused_at": {"N": f"{bucket.refused_at:.6f}"},
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


def _bucket(item: Mapping[str, AttributeValueTypeDef]) -> Bucket:
    def number(name: str) -> float:
        return float(item[name]["N"]) if name in item else 0.0

    return Bucket(number("tokens"), number("at"), int(number("refusals")), number("refused_at"))
