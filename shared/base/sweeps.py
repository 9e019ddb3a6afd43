"""The time of each cluster's last sweep, in the table of its fleet: silence is noticed where nothing of it is needed.

One row a cluster, whose partition key is the cluster's name, so that IAM allows each cluster its own row only.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

INTERVAL = timedelta(minutes=5)
"""How often a cluster writes its row: of five sweeps one."""
PARTITION_KEY = "cluster"
SWEPT = "swept"


def record(client: DynamoDBClient, table: str, cluster: str, *, now: datetime) -> None:
    """Write that a sweep of the cluster has completed.

    Raises:
        ClientError: DynamoDB failed.
    """
    client.put_item(TableName=table, Item={PARTITION_KEY: {"S": cluster}, SWEPT: {"S": now.isoformat()}})
