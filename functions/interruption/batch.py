"""The batch of an SQS event: parsed interruption events; malformed ones are dead-lettered. Or the schedule's event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.base import aws, hints, queues
from shared.interruptions.notice import MalformedEventError
from shared.interruptions.parser import parse

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from shared.interruptions.parser import Event


@dataclass(frozen=True, kw_only=True)
class Message:
    """An SQS message with one event. ``redelivered``: an earlier invocation may have handled it in part."""

    id: str
    event: Event
    redelivered: bool


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The messages of a batch; ``sweep``: it is the schedule's event; ``malformed``: how many were malformed."""

    messages: tuple[Message, ...]
    sweep: bool
    malformed: int


def parse_batch(event: dict[str, Any], *, dead_letter_queue_url: str, logger: Logger) -> Batch:
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
            queues.reject_malformed_event(
                aws.sqs(), dead_letter_queue_url, record=record, reason=str(error), logger=logger
            )
            malformed += 1
            continue
        redelivered = int(record["attributes"]["ApproximateReceiveCount"]) > 1
        messages.append(Message(id=record["messageId"], event=parsed, redelivered=redelivered))
    return Batch(messages=tuple(messages), sweep=False, malformed=malformed)
