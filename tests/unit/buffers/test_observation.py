"""What the buffers function writes after it has read queues and alarms, and after events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.buffers import observation
from functions.buffers.controller import _observed
from functions.buffers.messages import Arrival, Batch
from functions.buffers.observation import HOLD, LAST_READS, NOTHING, Level, followed
from functions.buffers.readings import Readings, Source
from shared.api import buffer_signals
from shared.api.buffer_signals import Event
from shared.api.capacity_buffer import CapacityBuffer, CapacityBufferSpec
from shared.api.labels import ALARM_UNTIL, EVENT_UNTIL, QUEUE_CHUNKS, QUEUE_UNTIL
from shared.api.meta import ObjectMeta

NOW = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
READ = timedelta(seconds=30)
SALE = Event("shop.campaigns", "Sale")


def buffer(replicas: int | None = 10, **annotations: str) -> CapacityBuffer:
    named = {f"tenon.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return CapacityBuffer(metadata=ObjectMeta(name="b", annotations=named), spec=CapacityBufferSpec(replicas=replicas))


def readings(messages: int | None = None, alarm: bool | None = None) -> Readings:  # noqa: FBT001 (a state)
    unknown = {} if messages is not None else {Source("queue", "q"): 'queue "q" can\'t be read: Throttling'}
    return Readings(
        messages={} if messages is None else {"q": messages},
        alarms={} if alarm is None else {"a": alarm},
        unknown=unknown,
    )


def written(before: CapacityBuffer, read: Readings, now: datetime = NOW) -> dict[str, str]:
    after = observation.with_readings(before, read, now=now).metadata.annotations
    return {key: value for key, value in after.items() if key in buffer_signals.WRITTEN}


def test_messages_ask_for_chunks_rounded_up_and_at_most_the_replicas() -> None:
    for messages, chunks in ((0, None), (1, "1"), (100, "1"), (101, "2"), (10_000, "10")):
        after_read = written(buffer(sqs_queue="q", messages_per_chunk="100"), readings(messages))
        assert after_read.get(QUEUE_CHUNKS) == chunks
        assert after_read.get(QUEUE_UNTIL) == (chunks and "2026-11-22T12:11:00Z")


def test_without_replicas_a_queue_asks_for_as_many_as_a_buffer_may_have() -> None:
    assert written(buffer(None, sqs_queue="q"), readings(1_000_000))[QUEUE_CHUNKS] == "10000"


def test_an_alarm_holds_for_ten_minutes_and_other_states_write_nothing() -> None:
    assert written(buffer(cloudwatch_alarm="a"), readings(alarm=True)) == {ALARM_UNTIL: "2026-11-22T12:11:00Z"}
    assert written(buffer(cloudwatch_alarm="a"), readings(alarm=False)) == {}


def test_what_lasts_is_renewed_every_few_minutes_and_not_at_each_read() -> None:
    level, writes, now = NOTHING, 0, NOW
    for _ in range(120):  # an hour
        after = followed(level, 5, now=now)
        writes += after != level
        level, now = after, now + READ
        assert level.until is not None
        assert level.until - now > timedelta(minutes=4)
    assert writes <= 60 / 4


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=60))
def test_no_read_within_five_minutes_is_forgotten_and_none_is_remembered_for_more_than_eleven(
    values: list[int | None],
) -> None:
    level, reads, now = NOTHING, [], NOW
    for value in values:
        level = followed(level, value, now=now)
        reads.append((now, value))
        holds = level.value if level.until is not None and level.until > now else 0
        recent = [v or 0 for at, v in reads if now - at < HOLD / 2]
        remembered = [v or 0 for at, v in reads if now - at <= HOLD + MINUTE]
        assert max(recent) <= holds <= max(remembered)
        now += READ


def test_a_lower_value_follows_without_a_gap() -> None:
    level = Level(10, NOW + HOLD)
    for seconds in range(0, 900, 30):
        now = NOW + timedelta(seconds=seconds)
        level = followed(level, 2, now=now)
        assert level.until is not None
        assert level.until > now
        assert level.value == (10 if NOW + HOLD - now > LAST_READS else 2)


def test_a_queue_that_cant_be_read_keeps_its_chunks_until_they_end() -> None:
    before = buffer(sqs_queue="q", queue_chunks="7", queue_until="2026-11-22T12:03:00Z")
    assert written(before, readings(None)) == {QUEUE_CHUNKS: "7", QUEUE_UNTIL: "2026-11-22T12:03:00Z"}
    assert written(before, readings(None), NOW + 3 * MINUTE) == {}


@pytest.mark.parametrize("until", ["2099-01-01T00:00:00Z", "soon", "2026-11-22T12:05:00", ""])
def test_a_time_that_the_function_didnt_write_is_replaced(until: str) -> None:
    before = buffer(sqs_queue="q", queue_chunks="7", queue_until=until)
    assert written(before, readings(2)) == {QUEUE_CHUNKS: "2", QUEUE_UNTIL: "2026-11-22T12:11:00Z"}


def test_what_was_seen_of_a_queue_that_isnt_followed_any_more_is_removed() -> None:
    before = buffer(queue_chunks="7", queue_until="2026-11-22T12:05:00Z", alarm_until="2026-11-22T12:05:00Z")
    assert written(before, readings(7, alarm=True)) == {}


def raised(before: CapacityBuffer, *times: datetime | None, event: Event = SALE) -> str | None:
    arrivals = [Arrival(event=event, time=time) for time in times]
    return observation.with_arrivals(before, arrivals, now=NOW).metadata.annotations.get(EVENT_UNTIL)


def test_an_event_raises_a_buffer_for_as_long_as_it_says_from_the_time_of_the_event() -> None:
    following = buffer(event="shop.campaigns/Sale", raise_for="20m")
    assert raised(following, NOW) == "2026-11-22T12:21:00Z"
    assert raised(following, NOW - 10 * MINUTE) == "2026-11-22T12:11:00Z"
    assert raised(following, NOW, NOW - 10 * MINUTE) == "2026-11-22T12:21:00Z"
    assert raised(following, NOW - 21 * MINUTE) is None
    assert raised(following, None) == "2026-11-22T12:21:00Z"
    assert raised(buffer(event="shop.campaigns/Sale"), NOW) == "2026-11-22T12:16:00Z"


def test_an_event_from_the_future_counts_as_now() -> None:
    assert raised(buffer(event="shop.campaigns/Sale"), NOW + timedelta(days=9)) == "2026-11-22T12:16:00Z"


def test_an_older_event_doesnt_shorten_a_later_one() -> None:
    following = buffer(event="shop.campaigns/Sale", event_until="2026-11-22T12:15:00Z")
    assert raised(following, NOW - 5 * MINUTE) == "2026-11-22T12:15:00Z"
    assert raised(following, NOW) == "2026-11-22T12:16:00Z"


def test_other_events_change_nothing() -> None:
    assert raised(buffer(event="shop.campaigns/Sale"), NOW, event=Event("shop.campaigns", "Other")) is None
    assert raised(buffer(sqs_queue="q"), NOW) is None


def test_a_storm_of_events_is_written_once_a_minute() -> None:
    following, writes = buffer(event="shop.campaigns/Sale"), 0
    for seconds in range(120):
        now = NOW + timedelta(seconds=seconds)
        after = observation.with_arrivals(following, [Arrival(event=SALE, time=now)], now=now)
        writes += after is not following
        following = after
    assert writes == 3


def test_only_the_sources_of_a_buffer_are_said_of_it() -> None:
    sentence = 'queue "q" can\'t be read: Throttling'
    assert list(observation.unknown(buffer(sqs_queue="q", cloudwatch_alarm="a"), readings(None))) == [sentence]
    assert list(observation.unknown(buffer(sqs_queue="other"), readings(None))) == []


def test_a_buffer_that_follows_events_and_a_queue_is_raised_by_both_in_one_run() -> None:
    following = buffer(sqs_queue="q", messages_per_chunk="100", event="shop.campaigns/Sale")
    batch = Batch(arrivals=(Arrival(event=SALE, time=NOW),), read=True)
    annotations = _observed(following, batch=batch, readings=readings(200), now=NOW).metadata.annotations
    assert annotations[QUEUE_CHUNKS] == "2"
    assert annotations[EVENT_UNTIL] == "2026-11-22T12:16:00Z"
