"""Offerings that just had no capacity: remembered for three minutes, by all functions together.

They live in DynamoDB because what one launch learned must spare the next one the call. Losing them costs a few calls,
nothing else. A row that DynamoDB has not yet deleted is ignored once it has expired.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

TTL = timedelta(minutes=3)
"""Karpenter's, reference/karpenter.md section 4."""

_PARTITION = "unavailable"

OfferingKey = tuple[str, str, str]
"""Capacity type, instance type, zone."""


def mark(dynamodb: DynamoDBClient, table: str, offering: OfferingKey, *, reason: str, now: datetime) -> None:
    """Remember that the offering has no capacity; ``reason`` is EC2's code. Marking again starts the time anew."""
    dynamodb.put_item(
        TableName=table,
        Item={
            "pk": {"S": _PARTITION},
            "sk": {"S": ":".join(offering)},
            "reason": {"S": reason},
            "expires": {"N": str(int((now + TTL).timestamp()))},
        },
    )


def current(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> frozenset[OfferingKey]:
    """The offerings that have no capacity now."""
    found: set[OfferingKey] = set()
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
            found.add((capacity_type, instance_type, zone))
    return frozenset(found)
