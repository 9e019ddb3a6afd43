"""The decision log: records are read as they were written, by node, newest first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import boto3
import pytest
from moto import mock_aws

from shared.base import decision_log
from shared.base.decision_log import DecisionRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TABLE = "tenon"


@pytest.fixture
def dynamodb() -> Iterator[DynamoDBClient]:
    """An account with the table."""
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client


def refused(node: str, minutes: int = 0) -> DecisionRecord:
    return DecisionRecord(
        node=node,
        at=NOW + timedelta(minutes=minutes),
        outcome=decision_log.REFUSED,
        reason="Underutilized",
        why=f"after {minutes} min",
        blocked_by="PodDisruptionBudget default/web",
        savings=0.125,
        pods=3,
        nodes=1,
    )


def test_records_are_read_newest_first(dynamodb: DynamoDBClient) -> None:
    entries = [refused("a", minutes) for minutes in (0, 1, 2)]
    taken = DecisionRecord(
        node="a", at=NOW + timedelta(hours=1), outcome=decision_log.TAKEN, reason="Empty", why="empty"
    )
    for entry in (*entries, taken):
        decision_log.put(dynamodb, TABLE, entry)
    assert decision_log.latest(dynamodb, TABLE, "a") == (taken, *reversed(entries))
    assert decision_log.latest(dynamodb, TABLE, "a", limit=2) == (taken, entries[2])


def test_records_of_nodes_with_a_common_name_prefix_are_kept_apart(dynamodb: DynamoDBClient) -> None:
    for name in ("ip-10-0-0-1", "ip-10-0-0-11"):
        decision_log.put(dynamodb, TABLE, refused(name))
    assert [d.node for d in decision_log.latest(dynamodb, TABLE, "ip-10-0-0-1")] == ["ip-10-0-0-1"]
    assert decision_log.latest(dynamodb, TABLE, "ip-10-0-0") == ()


def test_records_expire_after_90_days(dynamodb: DynamoDBClient) -> None:
    decision_log.put(dynamodb, TABLE, refused("a"))
    (item,) = dynamodb.scan(TableName=TABLE)["Items"]
    assert int(item["expires"]["N"]) == int((NOW + timedelta(days=90)).timestamp())
