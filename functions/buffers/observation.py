"""What was seen of a buffer's signals, as annotations with the time until which it holds. Pure.

A value that rises is written at once. One that lasts is renewed before it ends, and one that falls or can't be read is
left to end: a buffer follows a fall after five to ten minutes, and neither forgets a queue because of one failed read
nor remembers it for ever. Times are whole minutes, rounded up, so that a storm of events is one write a minute.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from functions.buffers.readings import Source
from shared.api import buffer_signals
from shared.api.capacity_buffer import MAX_CHUNKS
from shared.api.labels import ALARM_UNTIL, EVENT_UNTIL, QUEUE_CHUNKS, QUEUE_UNTIL
from shared.api.meta import annotated, timestamp
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from functions.buffers.messages import Arrival
    from functions.buffers.readings import Readings
    from shared.api.buffer_signals import Signals
    from shared.api.capacity_buffer import CapacityBuffer

_MINUTE = timedelta(minutes=1)
HOLD = timedelta(minutes=10)
"""How long what was seen of a queue or an alarm holds."""
RENEWAL = timedelta(minutes=6)
"""It is renewed when less than this is left."""
LAST_READS = _MINUTE
"""A lower value is written this long before the higher one ends, by the last two reads: no decision sees a gap."""


class Level(NamedTuple):
    """A value that was seen, and until when it holds."""

    value: int
    until: datetime | None


NOTHING = Level(0, None)


def with_readings(buffer: CapacityBuffer, readings: Readings, *, now: datetime) -> CapacityBuffer:
    """The buffer with what was read of its queue and its alarm."""
    annotations = buffer.metadata.annotations
    signals, seen = buffer_signals.signals(annotations), buffer_signals.seen(annotations)
    queue = alarm = NOTHING
    if signals.queue:
        chunks = wanted_chunks(buffer, signals, readings.messages.get(signals.queue))
        queue = followed(Level(seen.queue_chunks, seen.queue_until), chunks, now=now)
    if signals.alarm:
        alarm = followed(Level(int(seen.alarm_until is not None), seen.alarm_until), _alarm(signals, readings), now=now)
    written = {
        QUEUE_CHUNKS: str(queue.value) if queue.until else None,
        QUEUE_UNTIL: _text(queue.until),
        ALARM_UNTIL: _text(alarm.until),
    }
    return _with(buffer, written)


def with_arrivals(buffer: CapacityBuffer, arrivals: Iterable[Arrival], *, now: datetime) -> CapacityBuffer:
    """The buffer, raised by those of the events that it follows. Events that came too late change nothing.

    A sender may give any time. A future one counts as now, so that no event raises a buffer for longer than it allows.
    """
    annotations = buffer.metadata.annotations
    signals, seen = buffer_signals.signals(annotations), buffer_signals.seen(annotations)
    times = [min(a.time or now, now) for a in arrivals if a.event in signals.events]
    until = max((_whole_minute(time + signals.raise_for) for time in times), default=now)
    if until <= now or (seen.event_until is not None and until <= seen.event_until):
        return buffer
    return _with(buffer, {EVENT_UNTIL: _text(until)})


def wanted_chunks(buffer: CapacityBuffer, signals: Signals, messages: int | None) -> int | None:
    """The chunks that this many messages ask for, None if they are unknown.

    At most the buffer's replicas: what a queue holds beyond them needs no writing.
    """
    if messages is None:
        return None
    replicas = buffer.spec.replicas
    return min(-(-messages // signals.messages_per_chunk), MAX_CHUNKS if replicas is None else replicas)


def followed(stored: Level, value: int | None, *, now: datetime) -> Level:
    """What to store after a value was read (None: it can't be), of which 0 is nothing."""
    left = stored.until - now if stored.until is not None else timedelta()
    if left > HOLD + 2 * _MINUTE:
        left = timedelta()  # not written by this function, not even by an invocation that began a moment later
    if value is None:
        return stored if left > timedelta() else NOTHING
    if value < stored.value and left > LAST_READS:
        return stored
    if value == stored.value and left >= RENEWAL:
        return stored
    return Level(value, _whole_minute(now + HOLD)) if value else NOTHING


def unknown(buffer: CapacityBuffer, readings: Readings) -> Iterable[str]:
    """The sentences about the buffer's sources that could not be read."""
    signals = buffer_signals.signals(buffer.metadata.annotations)
    sources = (
        Source("queue", signals.queue),
        Source("alarm", signals.alarm),
        *(Source("event", str(event)) for event in signals.events),
    )
    return (readings.unknown[source] for source in sources if source in readings.unknown)


def _alarm(signals: Signals, readings: Readings) -> int | None:
    state = readings.alarms.get(signals.alarm)
    return None if state is None else int(state)


def _whole_minute(time: datetime) -> datetime:
    floor = time.replace(second=0, microsecond=0)
    return floor if floor == time else floor + _MINUTE


def _text(time: datetime | None) -> str | None:
    return timestamp(time) if time is not None else None


def _with(buffer: CapacityBuffer, written: Mapping[str, str | None]) -> CapacityBuffer:
    """The buffer with these annotations; None removes one."""
    return with_fields(buffer, metadata=annotated(buffer.metadata, written))
