"""Offerings that just had no capacity: remembered for three minutes, by all functions together.

They live in DynamoDB because what one launch learned must spare the next one the call. Losing them costs a few calls,
nothing else. A row that DynamoDB has not yet deleted is ignored once it has expired.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared import runtime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import WriteRequestUnionTypeDef

    from shared.instance_types.instance_type import OfferingKey

TTL = timedelta(minutes=3)
"""Karpenter's, docs/facts/karpenter.md section 4."""
RETRY_AFTER = timedelta(seconds=50)
"""When pods have no other choice, what was refused so long ago is asked for again: by the next minute's look."""

_PARTITION = "unavailable"
_A_CALL = 25
"""Items that BatchWriteItem takes."""
_WAITS = (0.05, 0.1, 0.2, 0.4)
"""Seconds between tries of what DynamoDB puts off."""


def mark(dynamodb: DynamoDBClient, table: str, offerings: Iterable[OfferingKey], *, reason: str, now: datetime) -> None:
    """Remember that the offerings have no capacity; ``reason`` is EC2's code. Marking again starts the time anew.

    What DynamoDB puts off is tried again for about a second; what it still puts off then is forgotten.

    Raises:
        ClientError: DynamoDB failed.
    """
    expires = str(int((now + TTL).timestamp()))
    left: list[WriteRequestUnionTypeDef] = [
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
    for wait in _WAITS:
        put_off: list[WriteRequestUnionTypeDef] = []
        for start in range(0, len(left), _A_CALL):
            answer = dynamodb.batch_write_item(RequestItems={table: left[start : start + _A_CALL]})
            put_off += answer["UnprocessedItems"].get(table, [])
        left = put_off
        if not left:
            return
        runtime.current().sleep(wait)


def current(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> frozenset[OfferingKey]:
    """The offerings that have no capacity now."""
    return frozenset(marked_at(dynamodb, table, now=now))


def marked_at(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> dict[OfferingKey, datetime]:
    """The offerings that have no capacity now, and when that was seen last (to the second)."""
    found: dict[OfferingKey, datetime] = {}
    pages = dynamodb.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :partition",
        FilterExpression="expires > :now",
        ExpressionAttributeValues={":partition": {"S": _PARTITION}, ":now": {"N": str(int(now.timestamp()))}},
        ConsistentRead=True,
    )
    for page in pages:
        for item in page["Items"]:
            capacity_type, instance_type, zone = item["sk"]["S"].split(":", 2)
            expires = datetime.fromtimestamp(int(item["expires"]["N"]), UTC)
            found[capacity_type, instance_type, zone] = expires - TTL
    return found
