"""Reads and writes rows of the table that all functions share. Every row says when it expires.

The rows may be lost, so nothing stops without them: functions get a client that reads and writes nothing while
DynamoDB fails (:class:`shared.base.aws.BestEffortDynamoDB`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base import runtime

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef, WriteRequestUnionTypeDef

    Row = Mapping[str, AttributeValueTypeDef]

_MAX_BATCH_WRITE = 25
_RETRY_DELAYS = (0.05, 0.1, 0.2, 0.4)
"""Seconds before unprocessed items are written again."""


def put_rows(client: DynamoDBClient, table: str, items: Iterable[Row]) -> None:
    """Write the rows, 25 in a call. Unprocessed ones are written again for about a second, and then dropped.

    Raises:
        ClientError: DynamoDB failed.
    """
    remaining: list[WriteRequestUnionTypeDef] = [{"PutRequest": {"Item": item}} for item in items]
    for delay in _RETRY_DELAYS:
        unprocessed: list[WriteRequestUnionTypeDef] = []
        for start in range(0, len(remaining), _MAX_BATCH_WRITE):
            response = client.batch_write_item(RequestItems={table: remaining[start : start + _MAX_BATCH_WRITE]})
            unprocessed += response["UnprocessedItems"].get(table, [])
        remaining = unprocessed
        if not remaining:
            return
        runtime.sleep(delay)


def unexpired_rows(
    client: DynamoDBClient, table: str, partition: str, *, now: datetime, consistent: bool = False
) -> Iterator[Row]:
    """The rows of a partition that haven't expired: DynamoDB deletes a row up to days after its ``expires``.

    Raises:
        ClientError: DynamoDB failed.
    """
    pages = client.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :partition",
        FilterExpression="expires > :now",
        ExpressionAttributeValues={":partition": {"S": partition}, ":now": {"N": str(int(now.timestamp()))}},
        ConsistentRead=consistent,
    )
    for page in pages:
        yield from page["Items"]
