"""The batch of an SQS event: users' events, and the hints (schedule, alarms) to read queues and alarms now."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from shared.api.buffer_signals import ALARM_CHANGED, Event
from shared.base import hints, queues
from shared.base.struct import Struct, WireStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aws_lambda_powertools import Logger
    from mypy_boto3_sqs import SQSClient

    from functions.buffers.settings import BufferSettings

_SCHEDULED = Event(hints.SCHEDULE, hints.SCHEDULED)


class Arrival(Struct, kw_only=True):
    """A user's event: when it happened, by its sender; None if that isn't said."""

    event: Event
    time: datetime | None


class Batch(Struct, kw_only=True):
    """The users' events of a batch; ``read``: queues and alarms are to be read.

    ``retried`` are the messages that are redelivered if the batch fails. The schedule's aren't: another comes soon.
    """

    arrivals: tuple[Arrival, ...] = ()
    read: bool = False
    retried: frozenset[str] = frozenset()


class _Envelope(WireStruct, rename={"detail_type": "detail-type"}):
    """EventBridge's, without the detail: what users' events say is of no use here, and may be confidential."""

    source: str
    detail_type: str
    time: datetime | None = None

    @property
    def event(self) -> Event:
        """Its source and detail-type."""
        return Event(self.source, self.detail_type)


def parse_batch(
    event: dict[str, Any], settings: BufferSettings, *, sqs: Callable[[], SQSClient], logger: Logger
) -> Batch:
    """The batch; malformed messages go to the dead-letter queue with the reason."""
    arrivals: list[Arrival] = []
    retried: list[str] = []
    read, expected = False, settings.events
    for record in event["Records"]:
        try:
            envelope = _parse(record["body"], {_SCHEDULED, ALARM_CHANGED, *expected})
        except hints.MalformedHintError as error:
            queues.reject_malformed_event(
                sqs(), settings.dead_letter_queue_url, record=record, reason=str(error), logger=logger
            )
            continue
        kind = envelope.event
        if kind in expected:
            arrivals.append(Arrival(event=kind, time=envelope.time))
        read = read or kind in {_SCHEDULED, ALARM_CHANGED}
        if kind != _SCHEDULED:
            retried.append(record["messageId"])
    return Batch(arrivals=tuple(arrivals), read=read, retried=frozenset(retried))


def _parse(body: str, expected: Collection[Event]) -> _Envelope:
    try:
        envelope = hints.decode_json(body, _Envelope)
    except msgspec.MsgspecError as error:
        raise hints.MalformedHintError(f"invalid message: {error}") from error
    if envelope.time is not None and envelope.time.tzinfo is None:
        raise hints.MalformedHintError("invalid message: its time has no zone")
    if envelope.event not in expected:
        raise hints.MalformedHintError(f"{envelope.event} is not among the events that the deployment names")
    return envelope
