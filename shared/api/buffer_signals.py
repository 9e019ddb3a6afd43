"""What a CapacityBuffer follows outside the cluster (a queue, an alarm, events), and what was last seen of it.

Both are annotations of the buffer. Users write the first ones. The buffers function writes the others, so that each
decision follows from objects alone and kubectl shows why a buffer has its chunks. What was seen holds until a time that
is written with it: it is renewed while it lasts, and ends by itself if it falls or can't be read.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api.duration import DurationError, format_duration, parse_duration
from shared.api.labels import (
    ALARM_UNTIL,
    CLOUDWATCH_ALARM,
    EVENT,
    EVENT_UNTIL,
    MESSAGES_PER_CHUNK,
    QUEUE_CHUNKS,
    QUEUE_UNTIL,
    RAISE_FOR,
    SQS_QUEUE,
)
from shared.api.meta import parse_timestamp
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WRITTEN = frozenset({QUEUE_CHUNKS, QUEUE_UNTIL, ALARM_UNTIL, EVENT_UNTIL})
"""What the function writes."""
RENEWED = frozenset({QUEUE_UNTIL, ALARM_UNTIL})
"""Times that move while nothing changes."""

DEFAULT_RAISE = timedelta(minutes=15)
SHORTEST_RAISE = timedelta(minutes=1)
LONGEST_RAISE = timedelta(hours=24)

_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_MAX_ALARM_NAME = 255
_POSITIVE = re.compile(r"0{0,9}[1-9][0-9]{0,8}")


class Event(Struct):
    """The source and the detail-type of events on a bus."""

    source: str
    detail_type: str

    def __str__(self) -> str:
        return f"{self.source}/{self.detail_type}"


ALARM_CHANGED = Event("aws.cloudwatch", "CloudWatch Alarm State Change")
"""CloudWatch's event about the state of an alarm."""


class Signals(Struct, kw_only=True):
    """What one buffer follows; "" and () are nothing."""

    queue: str = ""
    messages_per_chunk: int = 1
    alarm: str = ""
    events: tuple[Event, ...] = ()
    raise_for: timedelta = DEFAULT_RAISE

    def __bool__(self) -> bool:
        return bool(self.queue or self.alarm or self.events)


class Seen(Struct, kw_only=True):
    """What was last seen of a buffer's signals; None is nothing, or nothing that can be read."""

    queue_chunks: int = 0
    queue_until: datetime | None = None
    alarm_until: datetime | None = None
    event_until: datetime | None = None


def event(text: str) -> Event | None:
    """The event of SOURCE/DETAIL-TYPE, None if a part is missing.

    The last slash separates them, because sources of AWS's partners have slashes (``aws.partner/example.com/orders``).
    """
    source, slash, detail_type = text.strip().rpartition("/")
    return Event(source, detail_type) if slash and source.strip() and detail_type.strip() else None


def signals(annotations: Mapping[str, str]) -> Signals:
    """What a buffer with valid annotations follows. Invalid ones count as missing."""
    per_chunk = annotations.get(MESSAGES_PER_CHUNK, "1")
    return Signals(
        queue=annotations.get(SQS_QUEUE, ""),
        messages_per_chunk=int(per_chunk) if _POSITIVE.fullmatch(per_chunk) else 1,
        alarm=annotations.get(CLOUDWATCH_ALARM, ""),
        events=tuple(parsed for line in _lines(annotations.get(EVENT, "")) if (parsed := event(line))),
        raise_for=_duration(annotations.get(RAISE_FOR, "")) or DEFAULT_RAISE,
    )


def problems(annotations: Mapping[str, str]) -> Iterator[str]:
    """The problems of a user's annotations, as sentences with the value and what is allowed."""
    return (
        f"metadata.annotations[{name}]: {problem}"
        for name, check in _CHECKS.items()
        if name in annotations
        for problem in check(annotations[name])
    )


def _queue_problems(name: str) -> Iterator[str]:
    if not _QUEUE_NAME.fullmatch(name):
        yield f'"{name}" is no queue\'s name; allowed are at most 80 letters, digits, "-" and "_", and no ARN or URL'


def _number_problems(text: str) -> Iterator[str]:
    if not _POSITIVE.fullmatch(text):
        yield f'"{text}" is not allowed; allowed is a number from 1 to 999999999'


def _alarm_problems(name: str) -> Iterator[str]:
    if not 1 <= len(name) <= _MAX_ALARM_NAME:
        yield f"has {len(name)} characters; allowed is an alarm's name of 1 to {_MAX_ALARM_NAME}"


def _event_problems(text: str) -> Iterator[str]:
    lines = _lines(text)
    if not lines:
        yield "is empty; allowed is SOURCE/DETAIL-TYPE, one a line"
    for line in lines:
        if event(line) is None:
            yield f'"{line}" is no event; allowed is SOURCE/DETAIL-TYPE, one a line'


def _duration_problems(text: str) -> Iterator[str]:
    if _duration(text) is None:
        shortest, longest = format_duration(SHORTEST_RAISE), format_duration(LONGEST_RAISE)
        yield f'"{text}" is not allowed; allowed is a duration from {shortest} to {longest}, such as 15m'


_CHECKS = {
    SQS_QUEUE: _queue_problems,
    MESSAGES_PER_CHUNK: _number_problems,
    CLOUDWATCH_ALARM: _alarm_problems,
    EVENT: _event_problems,
    RAISE_FOR: _duration_problems,
}


def seen(annotations: Mapping[str, str]) -> Seen:
    """What the function has written. A value that isn't its own counts as nothing."""
    chunks = annotations.get(QUEUE_CHUNKS, "")
    return Seen(
        queue_chunks=int(chunks) if _POSITIVE.fullmatch(chunks) else 0,
        queue_until=parse_timestamp(annotations.get(QUEUE_UNTIL, "")),
        alarm_until=parse_timestamp(annotations.get(ALARM_UNTIL, "")),
        event_until=parse_timestamp(annotations.get(EVENT_UNTIL, "")),
    )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _duration(text: str) -> timedelta | None:
    try:
        duration = parse_duration(text)
    except DurationError:
        return None
    return duration if duration is not None and SHORTEST_RAISE <= duration <= LONGEST_RAISE else None
