"""What is in a batch: events that were understood, and the sweep's tick; what nobody can read is put aside at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from functions.interruption.messages.notice import MalformedEventError
from functions.interruption.messages.parser import parse
from shared import aws, hints, queues

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

    from functions.interruption.messages.parser import Event
    from functions.interruption.report import Report


@dataclass(frozen=True, kw_only=True)
class Message:
    """One event. ``again``: it has been received before, and what followed from it may not be finished."""

    id: str
    event: Event
    again: bool


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The events of a batch; ``sweep``: a minute has passed."""

    messages: tuple[Message, ...]
    sweep: bool


def read(event: dict[str, Any], *, dead_letter_queue_url: str, report: Report, logger: Logger) -> Batch:
    """The batch of an SQS event; malformed messages go to the dead-letter queue with the reason."""
    messages = []
    sweep = False
    for record in event["Records"]:
        body = record["body"]
        try:
            parsed = parse(body)
        except MalformedEventError as error:
            if _is_tick(body):
                sweep = True
                continue
            queues.send_to_dead_letter_queue(aws.sqs(), dead_letter_queue_url, record=record, reason=str(error))
            report["malformed"] += 1
            logger.warning(
                "A malformed event went to the dead-letter queue",
                extra={"message_id": record["messageId"], "why": str(error)},
            )
            continue
        again = int(record["attributes"]["ApproximateReceiveCount"]) > 1
        messages.append(Message(id=record["messageId"], event=parsed, again=again))
    return Batch(messages=tuple(messages), sweep=sweep)


def _is_tick(body: str) -> bool:
    try:
        hint = hints.parse(body, cluster="")
    except hints.MalformedHintError:
        return False
    return hint.source == hints.SCHEDULE
