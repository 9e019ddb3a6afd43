"""The annotations of a CapacityBuffer that follows a queue, an alarm or events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.api import buffer_signals
from shared.api.buffer_signals import Event
from shared.api.meta import timestamp


def test_signals_are_read_from_annotations() -> None:
    signals = buffer_signals.signals(
        {
            "tenon.sh/sqs-queue": "orders.fifo",
            "tenon.sh/messages-per-chunk": "100",
            "tenon.sh/cloudwatch-alarm": "checkout latency, p99",
            "tenon.sh/event": "shop.campaigns/Sale\n\n aws.partner/shop.com/1/Order Placed \n",
            "tenon.sh/raise-for": "1h30m",
        }
    )
    assert (signals.queue, signals.messages_per_chunk, signals.alarm) == ("orders.fifo", 100, "checkout latency, p99")
    assert signals.events == (Event("shop.campaigns", "Sale"), Event("aws.partner/shop.com/1", "Order Placed"))
    assert signals.raise_for == timedelta(minutes=90)


def test_by_default_each_message_is_a_chunk_and_an_event_holds_for_a_quarter_of_an_hour() -> None:
    signals = buffer_signals.signals({"tenon.sh/sqs-queue": "q"})
    assert (signals.messages_per_chunk, signals.raise_for) == (1, timedelta(minutes=15))
    assert not buffer_signals.signals({"tenon.sh/messages-per-chunk": "5"})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("sqs-queue", "arn:aws:sqs:us-east-1:1:q", 'no queue\'s name; allowed are at most 80 letters, digits, "-"'),
        ("sqs-queue", "", "allowed are at most 80"),
        ("sqs-queue", "q" * 81, "allowed are at most 80"),
        ("messages-per-chunk", "0", "allowed is a number from 1"),
        ("messages-per-chunk", "-5", "allowed is a number from 1"),
        ("messages-per-chunk", "1.5", "allowed is a number from 1"),
        ("cloudwatch-alarm", "", "allowed is an alarm's name"),
        ("cloudwatch-alarm", "a" * 256, "allowed is an alarm's name"),
        ("event", " \n", "is empty; allowed is SOURCE/DETAIL-TYPE"),
        ("event", "shop/Sale\nSale", '"Sale" is no event; allowed is SOURCE/DETAIL-TYPE'),
        ("event", "/Sale", "allowed is SOURCE/DETAIL-TYPE"),
        ("raise-for", "soon", "allowed is a duration from 1m to 24h"),
        ("raise-for", "25h", "allowed is a duration from 1m to 24h"),
        ("raise-for", "Never", "allowed is a duration from 1m to 24h"),
        ("raise-for", "5s", "allowed is a duration from 1m to 24h"),
    ],
)
def test_an_invalid_value_is_named_with_what_is_allowed(name: str, value: str, why: str) -> None:
    (problem,) = buffer_signals.problems({f"tenon.sh/{name}": value})
    assert problem.startswith(f"metadata.annotations[tenon.sh/{name}]: ")
    assert why in problem


def test_valid_and_other_annotations_have_no_problem() -> None:
    valid = {"tenon.sh/sqs-queue": "q.fifo", "tenon.sh/raise-for": "24h", "other": "", "tenon.sh/event": "a/b"}
    assert list(buffer_signals.problems(valid)) == []


def test_what_was_seen_is_read_as_it_is_written() -> None:
    time = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)
    seen = buffer_signals.seen({"tenon.sh/queue-chunks": "7", "tenon.sh/queue-until": timestamp(time)})
    assert (seen.queue_chunks, seen.queue_until, seen.alarm_until) == (7, time, None)
