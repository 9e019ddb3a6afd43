"""SQS batches: hints, dead letters, partial batch responses, and messages to be sent.

A malformed message goes to the function's dead-letter queue at once, with the reason as an attribute: a retry would
fail again, and in a FIFO queue it would block every message behind it. A message whose reconcile failed is returned in
the partial batch response, so SQS redelivers only that message and counts its receives.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import aws, hints, metrics
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        BatchResultErrorEntryTypeDef,
        MessageAttributeValueTypeDef,
        SendMessageBatchRequestEntryTypeDef,
        SendMessageRequestTypeDef,
    )

_logger = logging.getLogger(__name__)
_RETRY_SECONDS = (1, 4, 15, 60)
"""Seconds until a message is redelivered, by its receive count: together longer than a lease whose holder died (60 s),
and than fetching the catalog, so neither uses up a message's receives."""
_EXPIRED_RECEIPT = frozenset({"InvalidParameterValue", "MessageNotInflight", "ReceiptHandleIsInvalid"})
"""SQS's codes for a receipt whose visibility timeout has passed. The first is not in its API reference
(github.com/aws/aws-sdk-java/issues/1628)."""
_MAX_REASON = 1000
_MAX_BODY_BYTES = 240_000
"""A queue takes 262,144 bytes of body and attributes together."""
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
"""SQS allows #x9, #xA, #xD and what comes from #x20 on ("SendMessage", SQS API Reference)."""
_MAX_BATCH = 10
"""Messages that one SendMessageBatch takes, which may be as large together as one."""
MAX_DELAY_SECONDS = 900
"""SQS delays a message by at most 15 minutes."""


class Message(Struct, kw_only=True):
    """A message of a batch, and its hint."""

    id: str
    hint: hints.Hint


def parse_batch(
    event: dict[str, Any], *, cluster: str, sqs: SQSClient, dead_letter_queue_url: str, logger: Logger
) -> tuple[Message, ...]:
    """The hints of an SQS batch; malformed messages are logged and go to the dead-letter queue."""
    messages = []
    for record in event["Records"]:
        try:
            messages.append(Message(id=record["messageId"], hint=hints.parse(record["body"], cluster=cluster)))
        except hints.MalformedHintError as error:
            send_to_dead_letter_queue(sqs, dead_letter_queue_url, record=record, reason=str(error))
            logger.exception(
                "A malformed message was sent to the dead-letter queue",
                extra={"message_id": record["messageId"], "reason": str(error), "queue": record["eventSourceARN"]},
            )
    return tuple(messages)


def send_to_dead_letter_queue(
    sqs: SQSClient, dead_letter_queue_url: str, *, record: dict[str, Any], reason: str
) -> None:
    """Send a message to the dead-letter queue, its body unchanged, with the reason as an attribute.

    A body that leaves no room for the attributes is cut: a message that SQS refuses would fail its whole batch.
    """
    attributes: dict[str, MessageAttributeValueTypeDef] = {
        "reason": {"DataType": "String", "StringValue": _attribute(reason)},
        "source": {"DataType": "String", "StringValue": record["eventSourceARN"]},
    }
    request: SendMessageRequestTypeDef = {
        "QueueUrl": dead_letter_queue_url,
        "MessageBody": record["body"].encode()[:_MAX_BODY_BYTES].decode(errors="ignore") or "(empty)",
        "MessageAttributes": attributes,
    }
    if dead_letter_queue_url.endswith(".fifo"):
        request["MessageGroupId"] = "malformed"
        request["MessageDeduplicationId"] = record["messageId"]
    sqs.send_message(**request)


def _attribute(text: str) -> str:
    """The text as SQS accepts it in an attribute: short, and without control characters."""
    return text[:_MAX_REASON].encode("ascii", "backslashreplace").decode().translate(_ESCAPED) or "unknown"


def reject_malformed_event(
    sqs: SQSClient, dead_letter_queue_url: str, *, record: dict[str, Any], reason: str, logger: Logger
) -> None:
    """Log an event that can't be read, and send it to the dead-letter queue."""
    send_to_dead_letter_queue(sqs, dead_letter_queue_url, record=record, reason=reason)
    logger.warning(
        "A malformed event was sent to the dead-letter queue",
        extra={"message_id": record["messageId"], "why": reason},
    )


def send_delayed(sqs: SQSClient, queue_url: str, *, body: str, delay: timedelta) -> None:
    """Send a message to a standard queue, visible after the delay (rounded up to seconds, at most 15 minutes)."""
    sqs.send_message(QueueUrl=queue_url, MessageBody=body, DelaySeconds=_delay_seconds(delay))


def send_batches(sqs: SQSClient, queue_url: str, bodies: Iterable[str], *, delay: timedelta) -> None:
    """Send messages to a standard queue, several in each call, visible after the delay as with :func:`send_delayed`.

    Messages that SQS didn't take are sent once more.

    Raises:
        ClientError: a call failed, or SQS didn't take a message twice.
    """
    seconds = _delay_seconds(delay)
    for batch in _batches(bodies):
        not_taken = _send_batch(sqs, queue_url, batch, seconds)
        if not_taken:
            not_taken = _send_batch(sqs, queue_url, [batch[int(entry["Id"])] for entry in not_taken], seconds)
        if not_taken:
            first = not_taken[0]
            raise ClientError(
                {"Error": {"Code": first["Code"], "Message": first.get("Message", "")}}, "SendMessageBatch"
            )


def _send_batch(
    sqs: SQSClient, queue_url: str, bodies: Sequence[str], seconds: int
) -> list[BatchResultErrorEntryTypeDef]:
    """What SQS didn't take; an Id is the message's index."""
    entries: list[SendMessageBatchRequestEntryTypeDef] = [
        {"Id": str(i), "MessageBody": body, "DelaySeconds": seconds} for i, body in enumerate(bodies)
    ]
    return sqs.send_message_batch(QueueUrl=queue_url, Entries=entries).get("Failed", [])


def _batches(bodies: Iterable[str]) -> Iterator[list[str]]:
    """The messages in groups that one call takes."""
    batch: list[str] = []
    left = _MAX_BODY_BYTES
    for body in bodies:
        size = len(body.encode())
        if batch and (len(batch) == _MAX_BATCH or size > left):
            yield batch
            batch, left = [], _MAX_BODY_BYTES
        batch.append(body)
        left -= size
    if batch:
        yield batch


def _delay_seconds(delay: timedelta) -> int:
    return min(max(0, -int(-delay.total_seconds() // 1)), MAX_DELAY_SECONDS)


def try_send(
    sqs: Callable[[], SQSClient], queue_url: str, bodies: Iterable[str], *, delay: timedelta = timedelta()
) -> bool:
    """Send messages that may be lost, because a sweep finds their objects too; whether they were sent.

    A failure is reported: an outage of SQS, or a right that the function has lost. Without messages, no client is made.
    """
    messages = list(bodies)
    if not messages:
        return True
    try:
        send_batches(sqs(), queue_url, messages, delay=delay)
    except (BotoCoreError, ClientError) as error:
        _logger.warning("A message can't be sent, and a sweep finds its object later: %s", error)
        metrics.report_unwell("function-errors", f"a message can't be sent to {queue_url.rpartition('/')[2]}")
        return False
    return True


def redelivery(event: Mapping[str, Any], message_ids: Iterable[str]) -> dict[str, int]:
    """Seconds until the messages whose reconcile failed are delivered again, by id.

    It is 1, 4, 15, 60 s by their receive count, not the queue's visibility timeout.
    """
    receives = receive_counts(event)
    return {id_: retry_seconds(receives[id_]) for id_ in receives.keys() & set(message_ids)}


def receive_counts(event: Mapping[str, Any]) -> dict[str, int]:
    """How often each message of the batch was received, this time included, by its id."""
    return {r["messageId"]: int(r["attributes"]["ApproximateReceiveCount"]) for r in event.get("Records", ())}


def retry_seconds(receives: int) -> int:
    """Seconds until a message that was received that often is delivered again."""
    return _RETRY_SECONDS[min(receives, len(_RETRY_SECONDS)) - 1]


def respond(event: Mapping[str, Any], delays: Mapping[str, int]) -> dict[str, list[dict[str, str]]]:
    """Lambda's partial batch response that redelivers these messages, each after its seconds."""
    for record in event.get("Records", ()):
        if record["messageId"] in delays:
            name = record["eventSourceARN"].rpartition(":")[2]
            _make_visible(name, record["receiptHandle"], after=delays[record["messageId"]])
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in sorted(delays)]}


def _make_visible(queue: str, receipt_handle: str, *, after: int) -> None:
    """Let SQS deliver the message again after these seconds; one that is visible already is delivered without it."""
    sqs = aws.sqs()
    try:
        sqs.change_message_visibility(
            QueueUrl=sqs.get_queue_url(QueueName=queue)["QueueUrl"],
            ReceiptHandle=receipt_handle,
            VisibilityTimeout=after,
        )
    except ClientError as error:
        if aws.error_code(error).rpartition(".")[2] not in _EXPIRED_RECEIPT:
            raise
        _logger.warning("A message was visible again before its reconcile ended: %s", error)
