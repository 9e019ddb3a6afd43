"""Records interruptions: each drained node in the decision log, and spot instances by pool.

Launches know by the pools which of them EC2 interrupts often.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws, decision_log, runtime
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import condition
from shared.decision_log import DecisionRecord
from shared.instance_types.interruption_rates import PARTITION, RETENTION, Pool
from shared.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_dynamodb import DynamoDBClient

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


def record_drains(table: str, drains: Iterable[Drain], *, logger: Logger) -> None:
    """Write the drains to the decision log, for ``tenon explain node`` and the report; a failure is only logged."""
    now = runtime.current().now()
    decisions = [
        DecisionRecord(
            node=drain.claim.status.node_name or drain.claim.name,
            at=now,
            outcome=decision_log.TAKEN,
            reason=decision_log.INTERRUPTED,
            why=drain.message,
            nodes=1,
        )
        for drain in drains
    ]
    try:
        decision_log.put_all(aws.dynamodb(), table, decisions)
    except ClientError as error:
        logger.warning("Couldn't write to the decision log", extra={"nodes": len(decisions), "why": str(error)})


def record_pools(table: str, interrupted: Collection[str], claims: Iterable[NodeClaim], *, logger: Logger) -> None:
    """Add confirmed interruptions (names of NodeClaims) to the rates of their pools; a failure is only logged."""
    now = runtime.current().now()
    try:
        add(aws.dynamodb(), table, pool_notices(interrupted, claims, now=now), now=now)
    except ClientError as error:
        logger.warning("Couldn't record interruptions", extra={"why": str(error)})


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
    """Add the notices to their pools' rows, and restart the retention of these rows.

    Raises:
        ClientError: DynamoDB failed; the pools before it are recorded.
    """
    expires = str(int((now + RETENTION).timestamp()))
    for pool_notices in notices:
        dynamodb.update_item(
            TableName=table,
            Key={"pk": {"S": PARTITION}, "sk": {"S": ":".join(pool_notices.pool)}},
            UpdateExpression="ADD notices :n, interrupted_hours :i SET running_hours = :r, expires = :e",
            ExpressionAttributeValues={
                ":n": {"N": str(pool_notices.notices)},
                ":i": {"N": f"{pool_notices.interrupted_hours:.4f}"},
                ":r": {"N": f"{pool_notices.running_hours:.4f}"},
                ":e": {"N": expires},
            },
        )


def _hours(claim: NodeClaim, now: datetime) -> float:
    """Hours since its launch."""
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    since = launched.last_transition_time if launched is not None else claim.metadata.creation_timestamp
    return max(0.0, (now - since).total_seconds() / 3600) if since is not None else 0.0
