"""A message that can't be read goes to the dead-letter queue by itself; the others of its batch are handled."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from functions.interruption.batch import parse_batch
from shared.base import hints, queues

if TYPE_CHECKING:
    from collections.abc import Iterator

WARNING = json.dumps(
    {
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "2026-11-26T12:00:00Z",
        "detail": {"instance-id": "i-1", "instance-action": "terminate"},
    }
)
HINT = json.dumps({"source": "tenon.relay", "detail-type": "x", "detail": {"cluster": "demo", "keys": ["a"]}})


def health(start: str) -> str:
    detail = {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "startTime": start,
        "affectedEntities": [{"entityValue": "i-1"}],
    }
    event = {"source": "aws.health", "detail-type": "AWS Health Event", "time": "2026-11-26T12:00:00Z"}
    return json.dumps({**event, "detail": detail})


POISON = {
    "nested deeply": '{"source":' + "[" * 100_000,
    "a detail nested deeply": WARNING.replace('"i-1"', "[" * 990 + "]" * 990),
    "at the end of the calendar": WARNING.replace("2026-11-26T12:00:00Z", "9999-12-31T23:59:59-14:00"),
    "maintenance at the end of the calendar": health("Fri, 31 Dec 9999 23:59:59 -1400"),
    "another cluster with control characters": json.dumps(
        {"source": "x", "detail-type": "x", "detail": {"cluster": "\x00\x1b[2J\ufffe", "keys": []}}
    ),
    "as long as SQS allows": json.dumps({"source": "x" * 262_000}),
    "lists where texts are": WARNING.replace('"i-1"', "[" + '"i", ' * 40_000 + "1]"),
}


@pytest.fixture
def sqs() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("sqs", region_name="us-east-1")


def record(id_: str, body: str) -> dict[str, Any]:
    return {
        "messageId": id_,
        "body": body,
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:tenon-demo",
        "attributes": {"ApproximateReceiveCount": "1"},
    }


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("kind", ["events", "hints"])
def test_the_others_of_the_batch_are_handled(sqs: Any, poison: str, kind: str) -> None:
    url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    good = WARNING if kind == "events" else HINT
    batch = {"Records": [record("1", POISON[poison]), record("2", good)]}
    logger: Any = logging.getLogger("test")
    if kind == "events":
        parsed = parse_batch(batch, sqs=lambda: sqs, dead_letter_queue_url=url, logger=logger).messages
        assert [message.id for message in parsed] == ["2"]
    else:
        messages = queues.parse_batch(batch, cluster="demo", sqs=sqs, dead_letter_queue_url=url, logger=logger)
        assert [message.id for message in messages] == ["2"]
    (dead,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    reason = dead["MessageAttributes"]["reason"]["StringValue"]
    assert reason.isprintable()
    assert len(dead["Body"].encode()) + len(reason) < 262_144 - 1_000
    assert POISON[poison].startswith(dead["Body"])


def test_a_hint_whose_time_has_no_zone_is_malformed() -> None:
    with pytest.raises(hints.MalformedHintError):
        hints.parse(HINT.replace('"detail-type"', '"time": "2026-11-26T12:00:00", "detail-type"'), cluster="demo")
