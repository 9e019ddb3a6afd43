"""Messages that are sent several in a call: none is lost, and no call is larger than SQS takes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from shared.base.queues import send_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

URL = "https://sqs.us-east-1.amazonaws.com/123456789012/termination"
SECONDS = 15


@pytest.fixture
def stub() -> Iterator[Stubber]:
    sqs = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")
    with Stubber(sqs) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def takes(stub: Stubber, bodies: list[str], *, refused: str = "") -> None:
    """Expect a call with these messages, of which SQS refuses one."""
    entries = [{"Id": str(i), "MessageBody": body, "DelaySeconds": SECONDS} for i, body in enumerate(bodies)]
    failed = [
        {"Id": entry["Id"], "Code": "InternalError", "Message": "try later", "SenderFault": False}
        for entry in entries
        if entry["MessageBody"] == refused
    ]
    sent = [
        {"Id": str(i), "MessageId": str(i), "MD5OfMessageBody": "0"} for i, body in enumerate(bodies) if body != refused
    ]
    answer: dict[str, Any] = {"Successful": sent, "Failed": failed}
    stub.add_response("send_message_batch", answer, {"QueueUrl": URL, "Entries": entries})


def send(stub: Stubber, bodies: list[str]) -> None:
    sqs: Any = stub.client
    send_batches(sqs, URL, bodies, delay=timedelta(seconds=SECONDS))


def test_ten_messages_take_one_call(stub: Stubber) -> None:
    bodies = [f"drain {i}" for i in range(23)]
    for start in (0, 10, 20):
        takes(stub, bodies[start : start + 10])
    send(stub, bodies)


def test_large_messages_take_calls_of_their_own(stub: Stubber) -> None:
    large = "x" * 200_000
    takes(stub, ["small", large])
    takes(stub, [large, "small"])
    send(stub, ["small", large, large, "small"])


def test_a_message_that_sqs_did_not_take_is_sent_once_more(stub: Stubber) -> None:
    takes(stub, ["a", "b", "c"], refused="b")
    takes(stub, ["b"])
    send(stub, ["a", "b", "c"])


def test_a_message_that_sqs_does_not_take_twice_is_an_error_that_says_why(stub: Stubber) -> None:
    takes(stub, ["a", "b"], refused="b")
    takes(stub, ["b"], refused="b")
    with pytest.raises(ClientError, match=r"InternalError.*SendMessageBatch.*try later"):
        send(stub, ["a", "b"])


def test_no_messages_take_no_call(stub: Stubber) -> None:
    send(stub, [])
