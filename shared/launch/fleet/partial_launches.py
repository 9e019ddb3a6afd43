"""Launch groups for which EC2 launched fewer instances than requested, and how many: stored for an hour.

A run that dies after CreateFleet's answer may have written some of its results. The next run's request differs then, so
EC2 doesn't repeat the answer, and an instance that EC2 doesn't show may exist. The number tells that it doesn't. Losing
it only costs time: the NodeClaim stays unconfirmed until its registration time-out.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TTL = timedelta(hours=1)
"""Longer than the time-out of an unconfirmed launch."""
_PARTITION = "partial-launch"


class PartialLaunches(Struct):
    """The records in DynamoDB's ``table``; every method raises ClientError if DynamoDB failed."""

    dynamodb: DynamoDBClient
    table: str

    def remember(self, group: str, *, instances: int, now: datetime) -> None:
        """Store that EC2 launched that many instances for the group, and no more."""
        self.dynamodb.put_item(
            TableName=self.table,
            Item={
                "pk": {"S": _PARTITION},
                "sk": {"S": group},
                "instances": {"N": str(instances)},
                "expires": {"N": str(int((now + TTL).timestamp()))},
            },
        )

    def instances(self, group: str, *, now: datetime) -> int | None:
        """How many instances EC2 launched for the group; None if it launched all, or nothing is stored."""
        key = {"pk": {"S": _PARTITION}, "sk": {"S": group}}
        item = self.dynamodb.get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        if item is None or int(item["expires"]["N"]) <= now.timestamp():
            return None
        return int(item["instances"]["N"])
