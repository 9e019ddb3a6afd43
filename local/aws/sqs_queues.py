"""SQS feeding functions: what Lambda's pollers do, on the world's clock.

Messages are received in batches from moto's queues, which count receives, hide what was received, hold a FIFO group
back while one of its messages is out, and move what came too often to the dead-letter queue. What the function reports
as failed stays hidden until its visibility timeout has passed.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from moto.sqs.models import Message as SqsMessage

from local.aws import backends

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from local.aws.lambda_functions import Invocation, LambdaFunctions
    from local.aws.stack import EventSourceMapping

_STANDARD_CONCURRENCY = 2
"""Batches of one standard queue under way at once, where the mapping sets no limit."""
_BIGGEST_RECEIVE = 10
_INSTANT = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message as it was delivered to a function, or as it lies in a queue."""

    queue: str
    message_id: str
    body: str
    receives: int
    sent_at: datetime
    group_id: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


class SqsQueues:
    """An actor: polls every queue that feeds a function."""

    def __init__(
        self,
        sources: tuple[EventSourceMapping, ...],
        *,
        region: str,
        now: Callable[[], datetime],
        functions: LambdaFunctions,
        lock: threading.RLock,
    ) -> None:
        self._sources = sources
        self._region = region
        self._now = now
        self._functions = functions
        self._lock = lock
        self._out: defaultdict[str, int] = defaultdict(int)
        self.delivered: list[Message] = []

    def step(self, now: datetime) -> bool:
        """Hand over what is visible and whose batch is full or old enough."""
        did = False
        for source in self._sources:
            while self._ready(source, now) and self._poll(source):
                did = True
        return did

    def due(self) -> datetime | None:
        """When the next message becomes visible, or the next batch window ends."""
        moments = [moment for source in self._sources for moment in self._moments(source)]
        return min(moments, default=None)

    def messages(self, queue_name: str) -> list[Message]:
        """What is in a queue, hidden or not."""
        with self._lock:
            lying = backends.sqs(self._region).queues[queue_name]._messages  # noqa: SLF001 - the API would hide them
            return [_message(queue_name, message) for message in lying]

    def send(self, queue_name: str, body: str, *, group_id: str = "") -> None:
        """Put a message on a queue from outside: garbage, or one that was delivered before."""
        with self._lock:
            backend = backends.sqs(self._region)
            if not group_id:
                # moto's own counts the queue's messages at each send, which a storm of thousands can't wait for.
                message = SqsMessage(str(uuid.uuid4()), body)
                message.mark_sent(delay_seconds=0)
                backend.queues[queue_name].add_message(message)
                return
            backend.send_message(
                queue_name=queue_name,
                message_body=body,
                group_id=group_id,
                # Another delivery of a message is not another send: nothing is dropped as a duplicate.
                deduplication_id=str(uuid.uuid4()),
            )

    def empty(self) -> bool:
        """Whether no queue that feeds a function holds anything that is visible or out.

        What waits for its batch's window to end is visible.
        """
        now = self._now()
        if any(moment <= now for source in self._sources for moment in self._moments(source)):
            return False
        with self._lock:
            return not any(source.window and self._queue(source).messages for source in self._sources)

    def _queue(self, source: EventSourceMapping) -> Any:  # noqa: ANN401 - moto's queue
        return backends.sqs(self._region).queues[source.queue_name]

    def _limit(self, source: EventSourceMapping) -> int:
        if source.maximum_concurrency:
            return source.maximum_concurrency
        # As many as groups are free for a FIFO queue, which receiving sees to.
        return _BIGGEST_RECEIVE if source.queue_name.endswith(".fifo") else _STANDARD_CONCURRENCY

    def _ready(self, source: EventSourceMapping, now: datetime) -> bool:
        if self._out[source.queue_arn] >= self._limit(source) or not self._functions.may_start(source.function_name):
            return False
        with self._lock:
            self._expire(source, now)
            visible = self._queue(source).messages
        if not visible or len(visible) >= source.batch_size:
            return bool(visible)
        oldest = min(_visible_since(message) for message in visible)
        return oldest + timedelta(seconds=source.window) <= now

    def _poll(self, source: EventSourceMapping) -> bool:
        with self._lock:
            backend, queue = backends.sqs(self._region), self._queue(source)
            # moto goes through all that lies there at each receive: a batch that Lambda gathers from several is one.
            received = backend.receive_message(
                source.queue_name, source.batch_size, 0, queue.visibility_timeout, ["All"]
            )
        if not received:
            return False
        self.delivered.extend(_message(source.queue_name, message) for message in received)
        self._out[source.queue_arn] += 1
        self._functions.start(
            source.function_name,
            {"Records": [_record(source, message, self._region) for message in received]},
            trigger=_trigger(source, received),
            done=lambda record: self._finish(source, received, record),
        )
        return True

    def _finish(self, source: EventSourceMapping, received: list[Any], record: Invocation) -> None:
        failed = _failed(source, received, record)
        with self._lock:
            self._out[source.queue_arn] -= 1
            _delete(self._queue(source), {m.receipt_handle for m in received if m.id not in failed})

    def _expire(self, source: EventSourceMapping, now: datetime) -> None:
        queue = self._queue(source)
        oldest = (now - timedelta(seconds=queue.message_retention_period)).timestamp() * 1000
        for message in [message for message in queue._messages if message.sent_timestamp < oldest]:  # noqa: SLF001 - the API would hide them
            queue._messages.remove(message)  # noqa: SLF001 - the same
            queue.pending_messages.discard(message)
        # moto frees a group only as it comes by each of its messages, and would hand out a later one before the first.
        queue.pending_messages.difference_update([m for m in queue.pending_messages if m.visible])

    def _moments(self, source: EventSourceMapping) -> list[datetime]:
        with self._lock:
            queue = self._queue(source)
            if queue.fifo_queue:
                # What waits behind its group's first message is not due before that one is.
                first: dict[str, Any] = {}
                for message in queue._messages:  # noqa: SLF001 - the API would hide them
                    first.setdefault(message.group_id, message)
                # Nor is anything of a group while any of it is out with a function.
                for message in queue.pending_messages:
                    if message.group_id in first and _visible_since(message) > _visible_since(first[message.group_id]):
                        first[message.group_id] = message
                waiting = list(first.values())
            else:
                waiting = list(queue._messages)  # noqa: SLF001 - the same
            now = self._now()
            moments = []
            for message in waiting:
                visible = _visible_since(message)
                full = len(waiting) >= source.batch_size
                batched = visible if full else visible + timedelta(seconds=source.window)
                # One that is out with a function comes back at its visibility timeout.
                moments.append(max(batched, visible) if visible > now else batched)
            return moments


def _delete(queue: Any, handles: set[str]) -> None:  # noqa: ANN401 - moto's queue
    """As moto's own ``delete_message`` for each, in one pass; what was deleted or purged before is no error."""
    kept = []
    for message in queue._messages:  # noqa: SLF001 - the API goes through all messages for each
        if handles.isdisjoint(message.all_receipt_handles):
            kept.append(message)
            continue
        queue.pending_messages.discard(message)
        queue.deleted_messages.update(message.all_receipt_handles)
    queue._messages = kept  # noqa: SLF001 - the same


def _visible_since(message: Any) -> datetime:  # noqa: ANN401 - moto's message
    """When a message became or becomes visible; moto compares strictly, so a moment after."""
    hidden = max(message.visible_at, message.delayed_until)
    moment = datetime.fromtimestamp(max(hidden, message.sent_timestamp) / 1000, UTC)
    return moment + _INSTANT if hidden else moment


def _message(queue: str, message: Any) -> Message:  # noqa: ANN401 - moto's message
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


def _record(source: EventSourceMapping, message: Any, region: str) -> dict[str, Any]:  # noqa: ANN401 - moto's message
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
        "eventSourceARN": source.queue_arn,
        "awsRegion": region,
    }


def _failed(source: EventSourceMapping, received: list[Any], record: Invocation) -> frozenset[str]:
    """The ids of the messages that must come again, as Lambda reads the function's answer."""
    everything = frozenset(message.id for message in received)
    if not record.ok:
        return everything
    if not source.partial_failures or not isinstance(record.result, dict):
        return frozenset()
    failures = record.result.get("batchItemFailures") or []
    named = frozenset(str(item.get("itemIdentifier", "")) for item in failures)
    # An id that isn't in the batch, or an empty one, fails the whole batch.
    return min(named, everything)


def _trigger(source: EventSourceMapping, received: list[Any]) -> str:
    """What the messages are about, for people; the queue's name for what can't be read."""
    about = set()
    for message in received:
        body = body_of(_message(source.queue_name, message))
        about.add(str(body.get("detail-type", "")) if isinstance(body, dict) else "")
    return ", ".join(sorted(about)) if "" not in about else source.queue_name


def body_of(message: Message) -> Any:  # noqa: ANN401 - whatever JSON was sent
    """The message's body as JSON; the text itself if it is none."""
    try:
        return json.loads(message.body)
    except ValueError:
        return message.body
