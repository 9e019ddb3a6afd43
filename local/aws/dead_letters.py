"""What becomes of an event that EventBridge or Lambda couldn't deliver, or on which a function failed for good."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from local.aws import backends

if TYPE_CHECKING:
    from local.aws.invocation import Invocation


def failure_record(function_arn: str, record: Invocation, *, attempts: int) -> dict[str, Any]:
    """What a failure destination gets (Lambda Developer Guide, "Retaining records of asynchronous invocations")."""
    error, _, message = record.error.partition(": ")
    return {
        "version": "1.0",
        "timestamp": record.at.isoformat(),
        "requestContext": {
            "requestId": record.request_id,
            "functionArn": f"{function_arn}:$LATEST",
            "condition": "RetriesExhausted",
            "approximateInvokeCount": attempts,
        },
        "requestPayload": record.event,
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "responsePayload": {"errorType": error, "errorMessage": message},
    }


def send(region: str, queue_arn: str, body: str, *, reason: str) -> None:
    """Send a message to a dead-letter queue, with the reason, if there is one, as an attribute."""
    backend = backends.sqs(region)
    name = queue_arn.rsplit(":", 1)[-1]
    backend.send_message(
        queue_name=name,
        message_body=body,
        message_attributes={"reason": {"DataType": "String", "StringValue": reason[:1024]}} if reason else None,
        group_id="dead" if name.endswith(".fifo") else None,
        deduplication_id=str(uuid.uuid4()) if name.endswith(".fifo") else None,
    )
