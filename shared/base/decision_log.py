"""The decision log: disruption decisions about each node and why, and what launches cost. Kept for 90 days.

A disruption decision is one DynamoDB item for each node: ``pk`` is "decision", ``sk`` is the node's name and the time,
so the decisions about a node share a key prefix. The launches of a scheduling decision are one item: ``pk`` is
"launch", ``sk`` is the time and the decision's id. The disruption, interruption, lifecycle and termination functions
and the provisioner write the log, and the command line reads it. No decision depends on it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.base import dynamodb_rows
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

PARTITION, LAUNCHES = "decision", "launch"
RETENTION = timedelta(days=90)
REPEAT_INTERVAL = timedelta(hours=1)
"""How often the same blocked candidate is recorded."""
TAKEN, REFUSED, UNDONE = "taken", "refused", "undone"
"""Outcomes; a decision is undone when its execution was started and rolled back."""
INTERRUPTED = "Interrupted"
"""The reason of a decision that EC2 forced, by an interruption or because it stops the instance."""


DELETED_BY_HAND = "deleted by hand"
"""The reason of a row about a node that somebody else deleted, which was no decision of Tenon's."""


class DecisionRecord(Struct, kw_only=True):
    """A decision about a node.

    ``why`` is a sentence for users. ``blocked_by`` is the object that blocks a refused one (kind and name); empty if no
    object does, and the savings are too small. ``savings`` (USD per hour, None: unknown), the rescheduled ``pods``, the
    removed ``nodes`` and the ``replacements`` are those of the whole disruption command.
    """

    node: str
    at: datetime
    outcome: str
    reason: str
    why: str
    blocked_by: str = ""
    savings: float | None = None
    pods: int = 0
    nodes: int = 0
    replacements: int = 0


def put(dynamodb: DynamoDBClient, table: str, entry: DecisionRecord) -> None:
    """Write one decision.

    Raises:
        ClientError: DynamoDB failed.
    """
    dynamodb.put_item(TableName=table, Item=_item(entry))


def put_all(dynamodb: DynamoDBClient, table: str, entries: Iterable[DecisionRecord]) -> None:
    """Write decisions, as :func:`shared.base.dynamodb_rows.put_rows` does.

    Raises:
        ClientError: DynamoDB failed.
    """
    dynamodb_rows.put_rows(dynamodb, table, map(_item, entries))


def _item(entry: DecisionRecord) -> dict[str, AttributeValueTypeDef]:
    item: dict[str, AttributeValueTypeDef] = {
        "pk": {"S": PARTITION},
        "sk": {"S": f"{entry.node}#{entry.at.isoformat()}"},
        "node": {"S": entry.node},
        "at": {"S": entry.at.isoformat()},
        "outcome": {"S": entry.outcome},
        "reason": {"S": entry.reason},
        "why": {"S": entry.why},
        "expires": {"N": str(int((entry.at + RETENTION).timestamp()))},
    }
    if entry.blocked_by:
        item["blocked_by"] = {"S": entry.blocked_by}
    if entry.savings is not None:
        item["savings"] = {"N": f"{entry.savings:.6f}"}
    for name, count in (("pods", entry.pods), ("nodes", entry.nodes), ("replacements", entry.replacements)):
        if count:
            item[name] = {"N": str(count)}
    return item


def latest(dynamodb: DynamoDBClient, table: str, node: str, *, limit: int = 10) -> tuple[DecisionRecord, ...]:
    """The latest decisions about a node, newest first.

    Raises:
        ClientError: DynamoDB failed.
    """
    response = dynamodb.query(
        TableName=table,
        KeyConditionExpression="pk = :partition AND begins_with(sk, :node)",
        ExpressionAttributeValues={":partition": {"S": PARTITION}, ":node": {"S": f"{node}#"}},
        ScanIndexForward=False,
        Limit=limit,
    )
    return tuple(_record(item) for item in response["Items"])


def _record(item: dict[str, AttributeValueTypeDef]) -> DecisionRecord:
    savings = item.get("savings")
    return DecisionRecord(
        node=item["node"]["S"],
        at=datetime.fromisoformat(item["at"]["S"]),
        outcome=item["outcome"]["S"],
        reason=item["reason"]["S"],
        why=item["why"]["S"],
        blocked_by=item.get("blocked_by", {}).get("S", ""),
        savings=float(savings["N"]) if savings is not None else None,
        pods=_count(item, "pods"),
        nodes=_count(item, "nodes"),
        replacements=_count(item, "replacements"),
    )


def _count(item: dict[str, AttributeValueTypeDef], name: str) -> int:
    return int(item.get(name, {}).get("N", "0"))


def since(dynamodb: DynamoDBClient, table: str, moment: datetime) -> tuple[DecisionRecord, ...]:
    """All decisions after a moment, oldest first.

    Raises:
        ClientError: DynamoDB failed.
    """
    pages = dynamodb.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :partition",
        FilterExpression="#at > :moment",
        ExpressionAttributeNames={"#at": "at"},
        ExpressionAttributeValues={":partition": {"S": PARTITION}, ":moment": {"S": moment.isoformat()}},
    )
    return tuple(sorted((_record(item) for page in pages for item in page["Items"]), key=lambda d: (d.at, d.node)))


class LaunchRecord(Struct, kw_only=True):
    """The launches of one scheduling decision. Prices are USD per hour (docs/glossary.md).

    ``planned`` and ``bought`` are the planned and the bought price of its ``nodes``, ``before`` is the price of the
    nodes that existed and stay. ``realised`` is the price of all nodes once its ``pods`` run; None until then.
    """

    decision: str
    at: datetime
    pods: int
    nodes: int
    planned: float
    bought: float
    before: float
    realised: float | None = None


def put_launches(dynamodb: DynamoDBClient, table: str, record: LaunchRecord) -> None:
    """Write the launches of a decision, or replace them.

    Raises:
        ClientError: DynamoDB failed.
    """
    item: dict[str, AttributeValueTypeDef] = {
        "pk": {"S": LAUNCHES},
        "sk": {"S": f"{record.at.isoformat()}#{record.decision}"},
        "expires": {"N": str(int((record.at + RETENTION).timestamp()))},
        "pods": {"N": str(record.pods)},
        "nodes": {"N": str(record.nodes)},
    }
    prices = {"planned": record.planned, "bought": record.bought, "before": record.before, "realised": record.realised}
    item |= {name: {"N": f"{price:.6f}"} for name, price in prices.items() if price is not None}
    dynamodb.put_item(TableName=table, Item=item)


def launches_since(dynamodb: DynamoDBClient, table: str, moment: datetime) -> tuple[LaunchRecord, ...]:
    """The launches of decisions after a moment, oldest first.

    Raises:
        ClientError: DynamoDB failed.
    """
    pages = dynamodb.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :partition AND sk > :moment",
        ExpressionAttributeValues={":partition": {"S": LAUNCHES}, ":moment": {"S": moment.isoformat()}},
    )
    return tuple(_launch_record(item) for page in pages for item in page["Items"])


def _launch_record(item: dict[str, AttributeValueTypeDef]) -> LaunchRecord:
    at, _, decision = item["sk"]["S"].partition("#")
    realised = item.get("realised")
    return LaunchRecord(
        decision=decision,
        at=datetime.fromisoformat(at),
        pods=_count(item, "pods"),
        nodes=_count(item, "nodes"),
        planned=float(item["planned"]["N"]),
        bought=float(item["bought"]["N"]),
        before=float(item["before"]["N"]),
        realised=float(realised["N"]) if realised is not None else None,
    )
