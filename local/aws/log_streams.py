"""CloudWatch Logs' DescribeLogStreams for functions: when each wrote last, which moto doesn't know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.aws.interceptor import RawResponse
    from local.aws.invocation import Invocation

_GROUP_PREFIX = "/aws/lambda/"


def describe(request: bytes, invocations: Sequence[Invocation]) -> RawResponse:
    """The answer: one stream with the end of the function's last invocation; none if it hasn't run."""
    name = str(json.loads(request).get("logGroupName", "")).removeprefix(_GROUP_PREFIX)
    last = next((i for i in reversed(invocations) if i.function_name == name), None)
    streams = []
    if last is not None:
        written = int((last.at.timestamp() + last.latency) * 1000)
        streams = [{"logStreamName": last.request_id, "lastEventTimestamp": written}]
    return 200, {}, json.dumps({"logStreams": streams}).encode()
