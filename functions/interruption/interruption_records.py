"""Records interruptions: each drained node in the decision log, and spot instances by pool.

Decisions and launches know by the pools which of them EC2 interrupts often.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition
from shared.base import decision_log
from shared.base.aws import error_code
from shared.base.decision_log import DecisionRecord
from shared.base.struct import Struct
from shared.instance_types import interruption_rates
from shared.instance_types.interruption_rates import PARTITION, RETENTION, Pool, PoolRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from functions.interruption.cordon_and_drain import Drain
    from shared.api.nodeclaim import NodeClaim


class PoolNotices(Struct, kw_only=True):
    """New notices of a pool: instances that are interrupted, and the instance-hours of these and of the remaining.

    ``interrupted_hours`` are added to the earlier ones. ``running_hours`` replace them, because they include them.
    """

    pool: Pool
    notices: int
    interrupted_hours: float
    running_hours: float


def record_drains(dynamodb: DynamoDBClient, table: str, drains: Iterable[Drain], *, now: datetime) -> None:
    """Write the drains to the decision log, for ``tenon explain node`` and the report."""
    decisions = [
        DecisionRecord(
            node=drain.claim.node_or_own_name,
            at=now,
            outcome=decision_log.TAKEN,
            reason=decision_log.INTERRUPTED,
            why=drain.message,
            nodes=1,
        )
        for drain in drains
    ]
    decision_log.put_all(dynamodb, table, decisions)


def record_pools(
    dynamodb: DynamoDBClient,
    table: str,
    interrupted: Collection[str],
    claims: Iterable[NodeClaim],
    *,
    now: datetime,
) -> None:
    """Add confirmed interruptions (names of NodeClaims) to the rates of their pools."""
    add(dynamodb, table, pool_notices(interrupted, claims, now=now), now=now)


def pool_notices(
    interrupted: Collection[str], claims: Iterable[NodeClaim], *, now: datetime
) -> tuple[PoolNotices, ...]:
    """The notices of each pool with interrupted spot instances, and the hours of all of the pool's instances.

    ``interrupted`` are names of NodeClaims, ``claims`` all NodeClaims of the cluster.
    """
    by_pool: defaultdict[Pool, list[NodeClaim]] = defaultdict(list)
    for claim in claims:
        labels = claim.metadata.labels
        if labels.get(names.CAPACITY_TYPE) == names.SPOT:
            by_pool[labels.get(names.INSTANCE_TYPE, ""), labels.get(names.ZONE, "")].append(claim)
    return tuple(
        PoolNotices(
            pool=pool,
            notices=sum(claim.name in interrupted for claim in members),
            interrupted_hours=sum(_hours(c, now) for c in members if c.name in interrupted),
            running_hours=sum(_hours(c, now) for c in members if c.name not in interrupted),
        )
        for pool, members in sorted(by_pool.items())
        if all(pool) and any(claim.name in interrupted for claim in members)
    )


def add(dynamodb: DynamoDBClient, table: str, notices: Iterable[PoolNotices], *, now: datetime) -> None:
    """Add the notices to their pools' rows, where what was seen before counts as much as its age leaves.

    Raises:
        ClientError: DynamoDB failed; the pools before it are recorded.
    """
    records = interruption_rates.records(dynamodb, table, now=now)
    for pool_notices in notices:
        record = records.get(pool_notices.pool)
        try:
            _add(dynamodb, table, pool_notices, record, now=now)
        except ClientError as error:
            if record is None or error_code(error) != "ConditionalCheckFailedException":
                raise
            # Another invocation has added notices since: it has aged the row.
            _add(dynamodb, table, pool_notices, None, now=now)


def _add(
    dynamodb: DynamoDBClient, table: str, notices: PoolNotices, record: PoolRecord | None, *, now: datetime
) -> None:
    """Add the notices; if the row still is the record, it is aged: what it loses is subtracted in the same call.

    Raises:
        ClientError: DynamoDB failed, or the row has changed (ConditionalCheckFailedException).
    """
    lost = 1 - record.weight(now=now) if record is not None else 0.0
    lost_notices = lost * record.notices if record is not None else 0.0
    lost_hours = lost * record.interrupted_hours if record is not None else 0.0
    values: dict[str, AttributeValueTypeDef] = {
        ":n": {"N": f"{notices.notices - lost_notices:.6f}"},
        ":i": {"N": f"{notices.interrupted_hours - lost_hours:.4f}"},
        ":r": {"N": f"{notices.running_hours:.4f}"},
        ":e": {"N": str(int((now + RETENTION).timestamp()))},
    }
    condition: dict[str, str] = {}
    if record is not None:
        condition = {"ConditionExpression": "expires = :before"}
        values[":before"] = {"N": str(record.expires)}
    dynamodb.update_item(
        TableName=table,
        Key={"pk": {"S": PARTITION}, "sk": {"S": ":".join(notices.pool)}},
        UpdateExpression="ADD notices :n, interrupted_hours :i SET running_hours = :r, expires = :e",
        ExpressionAttributeValues=values,
        **condition,  # type: ignore[arg-type]  # a plain dict of the one parameter
    )


def _hours(claim: NodeClaim, now: datetime) -> float:
    """Hours since its launch."""
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    since = launched.last_transition_time if launched is not None else claim.metadata.creation_timestamp
    return max(0.0, (now - since).total_seconds() / 3600) if since is not None else 0.0
