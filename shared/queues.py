"""What comes out of a queue, and what goes back: hints, dead letters, partial answers, continuations.

A message that can't be understood is put into the function's dead-letter queue at once, with the reason beside it: a
retry would not make it clearer, and in a FIFO queue it would hold up everything behind it. Work that failed for now
is answered as a partial batch failure, so that SQS redelivers just that message and counts its tries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared import hints

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef, SendMessageRequestTypeDef

_RETRIES = (1, 4, 15, 60)
"""Seconds until a message comes back, by its tries so far: all five together outlast a lease whose holder died (60 s),
and a catalog that is being fetched, so that neither costs a message."""
LONGEST_DELAY_SECONDS = 900
"""SQS delays a message by 15 minutes at most."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a batch that is a hint."""

    id: str
    hint: hints.Hint


def parse_batch(
    event: dict[str, Any], *, cluster: str, sqs: SQSClient, dead_letter_queue_url: str, logger: Logger
) -> tuple[Message, ...]:
    """The hints of an SQS batch; what is malformed is buried and reported, and the rest goes on."""
    messages = []
    for record in event["Records"]:
        try:
            messages.append(Message(id=record["messageId"], hint=hints.parse(record["body"], cluster=cluster)))
        except hints.MalformedHintError as error:
            send_to_dead_letter_queue(sqs, dead_letter_queue_url, record=record, reason=str(error))
            logger.exception(
                "A malformed message went to the dead-letter queue",
                extra={"message_id": record["messageId"], "reason": str(error), "queue": record["eventSourceARN"]},
            )
    return tuple(messages)


def send_to_dead_letter_queue(
    sqs: SQSClient, dead_letter_queue_url: str, *, record: dict[str, Any], reason: str
) -> None:
    """Put a message into the dead-letter queue, body unchanged, with the reason as an attribute."""
    attributes: dict[str, MessageAttributeValueTypeDef] = {
        "reason": {"DataType": "String", "StringValue": reason},
        "source": {"DataType": "String", "StringValue": record["eventSourceARN"]},
    }
    request: SendMessageRequestTypeDef = {
        "QueueUrl": dead_letter_queue_url,
        "MessageBody": record["body"] or "(empty)",
        "MessageAttributes": attributes,
    }
    if dead_letter_queue_url.endswith(".fifo"):
        request["MessageGroupId"] = "malformed"
        request["MessageDeduplicationId"] = record["messageId"]
    sqs.send_message(**request)


def partial_batch_response(failed: Iterable[str]) -> dict[str, list[dict[str, str]]]:
    """What Lambda reads to redeliver only these messages; none: the whole batch is done."""
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def send_delayed(sqs: SQSClient, queue_url: str, *, body: str, delay: timedelta) -> None:
    """Put a message into a standard queue, visible after the delay (whole seconds, at most 15 minutes)."""
    seconds = min(max(0, -int(-delay.total_seconds() // 1)), LONGEST_DELAY_SECONDS)
    sqs.send_message(QueueUrl=queue_url, MessageBody=body, DelaySeconds=seconds)


def retry_response(
    sqs: SQSClient, event: dict[str, Any], message_ids: Iterable[str]
) -> dict[str, list[dict[str, str]]]:
    """The partial answer for messages that failed for now.

    They come back after 1, 4, 15, 60 s by their number of tries, not after the queue's whole visibility time-out.
    """
    failed = set(message_ids)
    for record in event["Records"]:
        if record["messageId"] in failed:
            tries = int(record["attributes"]["ApproximateReceiveCount"])
            name = record["eventSourceARN"].rpartition(":")[2]
            sqs.change_message_visibility(
                QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"],
                ReceiptHandle=record["receiptHandle"],
                VisibilityTimeout=_RETRIES[min(tries, len(_RETRIES)) - 1],
            )
    return partial_batch_response(sorted(failed))
