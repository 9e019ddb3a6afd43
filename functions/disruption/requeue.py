"""Requeues: delayed messages to the disruption function itself, at most one for each second and key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.base import hints, queues
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from functions.disruption.settings import DisruptionSettings

DUE_NODES = "empty"
"""Key of a requeue for nodes that become due, or that wait for their replacements."""
CONSOLIDATION = "consolidation"
"""Key of a requeue that also runs consolidation."""

SWEEP = "sweep"
"""Key of a requeue for everything, from a schedule's event. The next sweep replaces one that is not done by then."""

_MAX_DELAY_SECONDS = 90
"""A scheduled sweep runs before anything that is due later than this."""
MAX_REQUEUES = 500
_RECORD_TTL_SECONDS = 3600
_ROUND, _LATE_ROUND = timedelta(seconds=5), timedelta(seconds=15)
"""How often the queue is processed while claims wait for replacements, and for those that take unusually long."""
_LATE = timedelta(minutes=2)


def next_round(now: datetime, *, since: datetime) -> datetime:
    """When the queue is processed next, if claims wait for replacements that exist ``since`` then.

    It is at seconds that all chains share, so that any number of them become one.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> [next_round(noon + timedelta(seconds=s), since=noon).second for s in (3, 5, 123)]
    [5, 10, 15]
    """
    seconds = (_ROUND if now - since < _LATE else _LATE_ROUND).total_seconds()
    return datetime.fromtimestamp((now.timestamp() // seconds + 1) * seconds, tz=UTC)


class RequeueSender(Struct, kw_only=True):
    """Sends the requeues of one invocation.

    ``requeues`` is how many messages its chain has had; after :data:`MAX_REQUEUES` the sweep begins a new one.
    """

    settings: DisruptionSettings
    dynamodb: Callable[[], DynamoDBClient]
    sqs: Callable[[], SQSClient]
    now: Callable[[], datetime]
    requeues: int = 0

    def send_at(self, time: datetime, *, key: str) -> None:
        """Send the function a message that arrives at that time.

        Raises:
            ClientError: SQS refused.
        """
        now = self.now()
        delay = time - now
        if delay.total_seconds() > _MAX_DELAY_SECONDS or self.requeues >= MAX_REQUEUES:
            return
        if not self._is_first(-int(-time.timestamp() // 1), key):
            return
        cluster, requeues = self.settings.cluster_name, self.requeues + 1
        for body in hints.message_bodies(hints.REQUEUE, cluster=cluster, keys=[key], time=now, requeues=requeues):
            queues.send_delayed(self.sqs(), self.settings.disruption_queue_url, body=body, delay=delay)

    def _is_first(self, second: int, key: str) -> bool:
        """Whether no other requeue has this second and key.

        False too if DynamoDB can't be asked: messages that nobody counts would multiply, and a sweep runs each minute.
        """
        try:
            written = self.dynamodb().put_item(
                TableName=self.settings.table_name,
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
            return False
        return bool(written)
