"""Requeues: delayed messages to the disruption function itself, at most one for each second and key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.base import aws, hints, queues, runtime

if TYPE_CHECKING:
    from datetime import datetime

    from functions.disruption.settings import DisruptionSettings

FAST_METHODS = "empty"
"""Key of a requeue for nodes that become due, or that wait for their replacements."""
CONSOLIDATION = "consolidation"
"""Key of a requeue that also runs consolidation."""

SWEEP = "sweep"
"""Key of a requeue for everything, from a schedule's event. The next sweep replaces one that is not done by then."""

_MAX_DELAY_SECONDS = 90
"""A scheduled sweep runs before anything that is due later than this."""
MAX_REQUEUES = 500
_RECORD_TTL_SECONDS = 3600


def requeue_at(settings: DisruptionSettings, time: datetime, *, key: str, requeues: int) -> None:
    """Send the function a message that arrives at that time.

    ``requeues`` is how many messages this chain has had; after :data:`MAX_REQUEUES` the next sweep begins a new one.

    Raises:
        ClientError: DynamoDB or SQS refused.
    """
    now = runtime.current().now()
    delay = time - now
    if delay.total_seconds() > _MAX_DELAY_SECONDS or requeues >= MAX_REQUEUES:
        return
    second = -int(-time.timestamp() // 1)
    try:
        aws.dynamodb().put_item(
            TableName=settings.table_name,
            Item={
                "pk": {"S": "requeue"},
                "sk": {"S": f"{second}#{key}"},
                "expires": {"N": str(second + _RECORD_TTL_SECONDS)},
            },
            ConditionExpression="attribute_not_exists(pk)",
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        return
    for body in hints.message_bodies(
        hints.REQUEUE, cluster=settings.cluster_name, keys=[key], time=now, requeues=requeues + 1
    ):
        queues.send_delayed(aws.sqs(), settings.disruption_queue_url, body=body, delay=delay)
