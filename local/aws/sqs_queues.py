"""SQS event mapping mappings: Lambda's pollers on the world's clock.

Messages are received in batches from moto's queues, which count receives, hide received messages, block a FIFO group
while one of its messages is in flight, and move messages to the dead-letter queue. Messages that the function reports
as failed stay hidden until their visibility timeout has passed.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from moto.sqs.models import Message as SqsMessage

from local.aws import backends, recursive_loops
from shared.base.struct import Struct

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from local.aws.invocation import Invocation
    from local.aws.lambda_functions import LambdaFunctions
    from local.aws.stack import EventSourceMapping

_STANDARD_CONCURRENCY = 2
"""Concurrent batches of one standard queue if the mapping sets no limit."""
_FIFO_CONCURRENCY = 10
_CLOCK_RESOLUTION = timedelta(milliseconds=1)


class Message(Struct, kw_only=True):
    """A message as it was delivered to a function, or as it is in a queue."""

    queue: str
    message_id: str
    body: str
    receives: int
    sent_at: datetime
    group_id: str = ""
    attributes: Mapping[str, str] = {}


class SqsQueues:
    """An actor that polls every queue with an event mapping mapping."""

    def __init__(
        self,
        mappings: tuple[EventSourceMapping, ...],
        *,
        region: str,
        now: Callable[[], datetime],
        functions: LambdaFunctions,
        lock: threading.RLock,
    ) -> None:
        self._mappings = mappings
        self._region = region
        self._now = now
        self._functions = functions
        self._lock = lock
        self._in_flight: defaultdict[str, int] = defaultdict(int)
        self.delivered: list[Message] = []

    def step(self, now: datetime) -> bool:
        """Deliver visible messages whose batch is full or whose batch window has ended."""
        did = False
        for mapping in self._mappings:
            while self._ready(mapping, now) and self._poll(mapping):
                did = True
        return did

    def due(self) -> datetime | None:
        """When the next message becomes visible, or the next batch window ends."""
        times = [time for mapping in self._mappings for time in self._due_times(mapping)]
        return min(times, default=None)

    def messages(self, queue_name: str) -> list[Message]:
        """All messages of a queue, visible or hidden."""
        with self._lock:
            messages = backends.sqs(self._region).queues[queue_name]._messages  # noqa: SLF001 - the API would hide them
            return [_message(queue_name, message) for message in messages]

    def send(self, queue_name: str, body: str, *, group_id: str = "") -> None:
        """Send a message to a queue, such as a malformed or a repeated one."""
        with self._lock:
            backend = backends.sqs(self._region)
            if not group_id:
                # moto's send counts all messages of the queue, which is too slow for thousands.
                message = SqsMessage(str(uuid.uuid4()), body)
                message.mark_sent(delay_seconds=0)
                backend.queues[queue_name].add_message(message)
                return
            backend.send_message(
                queue_name=queue_name,
                message_body=body,
                group_id=group_id,
                # A repeated delivery must not be dropped as a duplicate.
                deduplication_id=str(uuid.uuid4()),
            )

    def empty(self) -> bool:
        """Whether no queue with a mapping has messages that are visible or in flight.

        Messages that wait for the end of their batch window are visible.
        """
        now = self._now()
        if any(time <= now for mapping in self._mappings for time in self._due_times(mapping)):
            return False
        with self._lock:
            return not any(mapping.window and self._queue(mapping).messages for mapping in self._mappings)

    def _queue(self, mapping: EventSourceMapping) -> Any:
        return backends.sqs(self._region).queues[mapping.queue_name]

    def _max_concurrency(self, mapping: EventSourceMapping) -> int:
        if mapping.maximum_concurrency:
            return mapping.maximum_concurrency
        # For a FIFO queue the number of unblocked groups is the limit, which receiving respects.
        return _FIFO_CONCURRENCY if mapping.queue_name.endswith(".fifo") else _STANDARD_CONCURRENCY

    def _ready(self, mapping: EventSourceMapping, now: datetime) -> bool:
        if self._in_flight[mapping.queue_arn] >= self._max_concurrency(mapping) or not self._functions.may_start(
            mapping.function_name
        ):
            return False
        with self._lock:
            self._expire(mapping, now)
            visible = self._queue(mapping).messages
        if not visible or len(visible) >= mapping.batch_size:
            return bool(visible)
        oldest = min(_visible_since(message) for message in visible)
        return oldest + timedelta(seconds=mapping.window) <= now

    def _poll(self, mapping: EventSourceMapping) -> bool:
        with self._lock:
            backend, queue = backends.sqs(self._region), self._queue(mapping)
            # moto scans the queue at each receive, so a batch is received at once.
            received = backend.receive_message(
                mapping.queue_name, mapping.batch_size, 0, queue.visibility_timeout, ["All"]
            )
        if not received:
            return False
        self.delivered.extend(_message(mapping.queue_name, message) for message in received)
        self._in_flight[mapping.queue_arn] += 1
        self._functions.start(
            mapping.function_name,
            {"Records": [_record(mapping, message, self._region) for message in received]},
            trigger=_trigger(mapping, received),
            lineage=recursive_loops.of_batch(received),
            done=lambda record: self._finish(mapping, received, record),
        )
        return True

    def _finish(self, mapping: EventSourceMapping, received: list[Any], record: Invocation) -> None:
        failed = _failed(mapping, received, record)
        with self._lock:
            self._in_flight[mapping.queue_arn] -= 1
            _delete(self._queue(mapping), {m.receipt_handle for m in received if m.id not in failed})

    def _expire(self, mapping: EventSourceMapping, now: datetime) -> None:
        queue = self._queue(mapping)
        oldest = (now - timedelta(seconds=queue.message_retention_period)).timestamp() * 1000
        for message in [message for message in queue._messages if message.sent_timestamp < oldest]:  # noqa: SLF001 - the API would hide them
            queue._messages.remove(message)  # noqa: SLF001 - the same
            queue.pending_messages.discard(message)
        # moto unblocks a group message by message, and could return a later message before the first.
        queue.pending_messages.difference_update([m for m in queue.pending_messages if m.visible])

    def _due_times(self, mapping: EventSourceMapping) -> list[datetime]:
        with self._lock:
            queue = self._queue(mapping)
            if queue.fifo_queue:
                # A group's messages are not due before its first message is.
                first: dict[str, Any] = {}
                for message in queue._messages:  # noqa: SLF001 - the API would hide them
                    first.setdefault(message.group_id, message)
                # No message of a group is due while one of it is in flight.
                for message in queue.pending_messages:
                    if message.group_id in first and _visible_since(message) > _visible_since(first[message.group_id]):
                        first[message.group_id] = message
                waiting = list(first.values())
            else:
                waiting = list(queue._messages)  # noqa: SLF001 - the same
            now = self._now()
            times = []
            for message in waiting:
                visible = _visible_since(message)
                full = len(waiting) >= mapping.batch_size
                batched = visible if full else visible + timedelta(seconds=mapping.window)
                # A message in flight becomes visible at its visibility timeout.
                times.append(max(batched, visible) if visible > now else batched)
            return times


def _delete(queue: Any, handles: set[str]) -> None:
    """Delete messages as moto's ``delete_message`` does, but in one pass; missing messages are no error."""
    remaining = []
    for message in queue._messages:  # noqa: SLF001 - the API goes through all messages for each
        if handles.isdisjoint(message.all_receipt_handles):
            remaining.append(message)
            continue
        queue.pending_messages.discard(message)
        queue.deleted_messages.update(message.all_receipt_handles)
    queue._messages = remaining  # noqa: SLF001 - the same


def _visible_since(message: Any) -> datetime:
    """When a message became or becomes visible; moto compares strictly, so one millisecond later."""
    hidden = max(message.visible_at, message.delayed_until)
    time = datetime.fromtimestamp(max(hidden, message.sent_timestamp) / 1000, UTC)
    return time + _CLOCK_RESOLUTION if hidden else time


def _message(queue: str, message: Any) -> Message:
    return Message(
        queue=queue,
        message_id=message.id,
        body=message.body,
        receives=message.approximate_receive_count,
        sent_at=datetime.fromtimestamp(message.sent_timestamp / 1000, UTC),
        group_id=message.group_id or "",
        attributes={
            name: str(value.get("StringValue") or value.get("string_value") or "")
            for name, value in message.message_attributes.items()
        },
    )


def _record(mapping: EventSourceMapping, message: Any, region: str) -> dict[str, Any]:
    attributes = {
        "ApproximateReceiveCount": str(message.approximate_receive_count),
        "SentTimestamp": str(message.sent_timestamp),
        "SenderId": message.sender_id,
        "ApproximateFirstReceiveTimestamp": str(message.approximate_first_receive_timestamp),
    }
    if message.group_id:
        attributes["MessageGroupId"] = message.group_id
        attributes["MessageDeduplicationId"] = message.deduplication_id or ""
        attributes["SequenceNumber"] = message.sequence_number or "0"
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt_handle,
        "body": message.body,
        "attributes": attributes,
        "messageAttributes": {
            name: {
                "stringValue": value.get("StringValue") or value.get("string_value"),
                "dataType": value.get("DataType") or value.get("data_type"),
                "stringListValues": [],
                "binaryListValues": [],
            }
            for name, value in message.message_attributes.items()
        },
        "md5OfBody": message.body_md5,
        "eventSource": "aws:sqs",
        "eventSourceARN": mapping.queue_arn,
        "awsRegion": region,
    }


def _failed(mapping: EventSourceMapping, received: list[Any], record: Invocation) -> frozenset[str]:
    """The ids of the messages to deliver again, by the function's partial batch response."""
    batch = frozenset(message.id for message in received)
    if not record.ok:
        return batch
    if not mapping.partial_failures or not isinstance(record.result, dict):
        return frozenset()
    failures = record.result.get("batchItemFailures") or []
    failed = frozenset(str(item.get("itemIdentifier", "")) for item in failures)
    # An id that isn't in the batch, or an empty id, fails the whole batch.
    return min(failed, batch)


def _trigger(mapping: EventSourceMapping, received: list[Any]) -> str:
    """The detail types of the messages, for people; the queue's name for malformed messages."""
    detail_types = set()
    for message in received:
        body = body_of(_message(mapping.queue_name, message))
        detail_types.add(str(body.get("detail-type", "")) if isinstance(body, dict) else "")
    return ", ".join(sorted(detail_types)) if "" not in detail_types else mapping.queue_name


def body_of(message: Message) -> Any:
    """The message's body from JSON; the text itself if it is not JSON."""
    try:
        return json.loads(message.body)
    except ValueError:
        return message.body
