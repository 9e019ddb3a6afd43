"""Offerings without capacity, as insufficient capacity errors showed them: stored for three minutes, for all functions.

They are in DynamoDB, because what one launch learns saves the next one a call. Losing them costs a few calls, nothing
else. Rows that DynamoDB hasn't deleted yet are ignored once they expire.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared import dynamodb_rows, runtime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import WriteRequestUnionTypeDef

    from shared.instance_types.instance_type import OfferingKey

TTL = timedelta(minutes=3)
"""Karpenter's (docs/facts/karpenter.md, section 4)."""
RETRY_AFTER = timedelta(seconds=50)
"""Offerings marked longer ago are tried again for pods without another choice: within a minute, by the schedule."""

_PARTITION = "unavailable"
_MAX_BATCH_WRITE = 25
_RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4)
"""Seconds before unprocessed items are written again."""


def mark(dynamodb: DynamoDBClient, table: str, offerings: Iterable[OfferingKey], *, reason: str, now: datetime) -> None:
    """Store that the offerings have no capacity; ``reason`` is EC2's code. Marking again restarts the TTL.

    Unprocessed items are written again for about a second, and then dropped.

    Raises:
        ClientError: DynamoDB failed.
    """
    expires = str(int((now + TTL).timestamp()))
    remaining: list[WriteRequestUnionTypeDef] = [
        {
            "PutRequest": {
                "Item": {
                    "pk": {"S": _PARTITION},
                    "sk": {"S": ":".join(offering)},
                    "reason": {"S": reason},
                    "expires": {"N": expires},
                }
            }
        }
        for offering in dict.fromkeys(offerings)
    ]
    for delay in _RETRY_DELAYS:
        unprocessed: list[WriteRequestUnionTypeDef] = []
        for start in range(0, len(remaining), _MAX_BATCH_WRITE):
            response = dynamodb.batch_write_item(RequestItems={table: remaining[start : start + _MAX_BATCH_WRITE]})
            unprocessed += response["UnprocessedItems"].get(table, [])
        remaining = unprocessed
        if not remaining:
            return
        runtime.current().sleep(delay)


def current(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> frozenset[OfferingKey]:
    """The offerings that are marked now."""
    return frozenset(marked_at(dynamodb, table, now=now))


def marked_at(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> dict[OfferingKey, datetime]:
    """The offerings that are marked now, and when each was marked last (to the second)."""
    marked: dict[OfferingKey, datetime] = {}
    for item in dynamodb_rows.unexpired_items(dynamodb, table, _PARTITION, now=now, consistent=True):
        capacity_type, instance_type, zone = item["sk"]["S"].split(":", 2)
        expires = datetime.fromtimestamp(int(item["expires"]["N"]), UTC)
        marked[capacity_type, instance_type, zone] = expires - TTL
    return marked
