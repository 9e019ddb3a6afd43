"""Reads rows of the table that all functions share. Every row says when it expires."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


def unexpired_items(
    client: DynamoDBClient, table: str, partition: str, *, now: datetime, consistent: bool = False
) -> Iterator[Mapping[str, AttributeValueTypeDef]]:
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
