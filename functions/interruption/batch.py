"""The batch of an SQS event: parsed interruption events; malformed ones are dead-lettered. Or the schedule's event.

The report counts what becomes of it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from shared.base import hints, queues
from shared.base.struct import Struct
from shared.interruptions.notice import MalformedEventError
from shared.interruptions.parser import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from shared.interruptions.parser import Event


ReportKey = Literal[
    "drained",
    "marked",
    "replaced",
    "cordoned",
    "launched",
    "ignored",
    "unmanaged",
    "expired",
    "duplicate",
    "contradicted",
]
"""Nodes, but for ``ignored``, ``unmanaged``, ``expired``, ``duplicate`` and ``contradicted``, which are messages."""
Report = Counter[ReportKey]
"""The results of a batch, for its log line and metrics."""


class Message(Struct, kw_only=True):
    """An SQS message with one event. ``redelivered``: an earlier invocation may have handled it in part."""

    id: str
    event: Event
    redelivered: bool


class Batch(Struct, kw_only=True):
    """The messages of a batch; ``sweep``: it is the schedule's event; ``malformed``: how many were malformed."""

    messages: tuple[Message, ...]
    sweep: bool
    malformed: int


def parse_batch(
    event: dict[str, Any], *, sqs: Callable[[], SQSClient], dead_letter_queue_url: str, logger: Logger
) -> Batch:
    """The batch of an SQS event; malformed messages go to the dead-letter queue with the reason."""
    if event.get("source") == hints.SCHEDULE:
        return Batch(messages=(), sweep=True, malformed=0)
    messages = []
    malformed = 0
    for record in event["Records"]:
        body = record["body"]
        try:
            parsed = parse(body)
        except MalformedEventError as error:
            queues.reject_malformed_event(sqs(), dead_letter_queue_url, record=record, reason=str(error), logger=logger)
            malformed += 1
            continue
        redelivered = int(record["attributes"]["ApproximateReceiveCount"]) > 1
        messages.append(Message(id=record["messageId"], event=parsed, redelivered=redelivered))
    return Batch(messages=tuple(messages), sweep=False, malformed=malformed)
