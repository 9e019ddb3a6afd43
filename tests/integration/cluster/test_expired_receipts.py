"""A message whose visibility timeout has passed while its batch was handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from shared.base import queues, runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "us-east-1"


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws(), runtime.using(runtime.Runtime(environ={})):
        yield


def received(name: str, *, bodies: int) -> tuple[Any, str, dict[str, Any]]:
    """The client, the queue's address, and a batch of its messages as Lambda hands it over."""
    sqs = boto3.client("sqs", region_name=REGION)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    for body in range(bodies):
        sqs.send_message(QueueUrl=url, MessageBody=str(body))
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=60)["Messages"]
    records = [
        {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "eventSourceARN": f"arn:aws:sqs:{REGION}:123456789012:{name}",
        }
        for message in messages
    ]
    return sqs, url, {"Records": records}


def test_the_other_messages_of_the_batch_are_answered_all_the_same() -> None:
    sqs, url, event = received("work", bodies=2)
    late, in_time = event["Records"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=late["receiptHandle"])  # SQS refuses its receipt from now on
    delays = {record["messageId"]: 0 for record in event["Records"]}
    response = queues.respond(event, delays)
    assert response == {"batchItemFailures": [{"itemIdentifier": id_} for id_ in sorted(delays)]}
    (again,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert again["MessageId"] == in_time["messageId"]


def test_a_queue_that_does_not_exist_is_an_error() -> None:
    _, _, event = received("work", bodies=1)
    (record,) = event["Records"]
    record["eventSourceARN"] += "-of-another"
    with pytest.raises(ClientError, match="NonExistentQueue"):
        queues.respond(event, {record["messageId"]: 1})
