"""Delayed messages to disruption itself, once for each second however many looks ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws, hints, queues, runtime

if TYPE_CHECKING:
    from datetime import datetime

    from functions.disruption.settings import DisruptionSettings

EMPTY = "empty"
"""Key of a wake-up for nodes whose time is up, or that are replaced."""
CONSOLIDATION = "consolidation"
"""Key of a wake-up for nodes that may be joined from then on."""

_WITHIN_SECONDS = 90
"""What is due later than that is found by a sweep that comes before it."""
_KEPT_SECONDS = 3600


def wake_up(settings: DisruptionSettings, moment: datetime, *, key: str) -> None:
    """Have a message come at that moment."""
    now = runtime.current().now()
    wait = moment - now
    if wait.total_seconds() > _WITHIN_SECONDS:
        return
    second = -int(-moment.timestamp() // 1)
    try:
        aws.dynamodb().put_item(
            TableName=settings.table_name,
            Item={
                "pk": {"S": "wake-up"},
                "sk": {"S": f"{second}#{key}"},
                "expires": {"N": str(second + _KEPT_SECONDS)},
            },
            ConditionExpression="attribute_not_exists(pk)",
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        return
    for body in hints.message_bodies(hints.REQUEUE, cluster=settings.cluster_name, keys=[key], time=now):
        queues.send_delayed(aws.sqs(), settings.disruption_queue_url, body=body, delay=wait)
