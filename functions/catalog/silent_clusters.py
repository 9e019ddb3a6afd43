"""Which clusters of a fleet are silent: no sweep of theirs has completed for longer than two of their records."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.base import aws, sweeps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

_MAX_AGE = 2 * sweeps.INTERVAL + timedelta(minutes=1)
_DEPLOYMENT = timedelta(minutes=30)
"""What a cluster has until its first sweep: the fleet's stack is deployed before its own."""
_AWAITED = "awaited"
_CONDITION_FAILED = "ConditionalCheckFailedException"


def silent(client: DynamoDBClient, table: str, clusters: Iterable[str], *, now: datetime) -> Iterator[tuple[str, str]]:
    """The clusters without a recent sweep, and since when.

    A cluster without a row gets one, from which on its first sweep is awaited.

    Raises:
        ClientError: DynamoDB failed.
    """
    pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    rows = {row[sweeps.PARTITION_KEY]["S"]: row for page in pages for row in page["Items"]}
    for cluster in clusters:
        row = rows.get(cluster)
        if row is None:
            _await_first(client, table, cluster, now)
        elif sweeps.SWEPT in row:
            last = datetime.fromisoformat(row[sweeps.SWEPT]["S"])
            if now - last > _MAX_AGE:
                yield cluster, f"its last sweep was completed at {last:%Y-%m-%d %H:%M} UTC"
        else:
            awaited = datetime.fromisoformat(row[_AWAITED]["S"])
            if now - awaited > _DEPLOYMENT:
                yield cluster, f"no sweep has completed since it was added at {awaited:%Y-%m-%d %H:%M} UTC"


def _await_first(client: DynamoDBClient, table: str, cluster: str, now: datetime) -> None:
    try:
        client.put_item(
            TableName=table,
            Item={sweeps.PARTITION_KEY: {"S": cluster}, _AWAITED: {"S": now.isoformat()}},
            ConditionExpression="attribute_not_exists(#cluster)",
            ExpressionAttributeNames={"#cluster": sweeps.PARTITION_KEY},
        )
    except ClientError as error:
        if aws.error_code(error) != _CONDITION_FAILED:  # its first sweep was faster
            raise
