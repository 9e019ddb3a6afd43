"""CloudWatch Logs of functions, which moto doesn't know: when each wrote last, and the lines that a pattern finds."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.aws.interceptor import RawResponse
    from local.aws.invocation import Invocation

_GROUP_PREFIX = "/aws/lambda/"
_TERM = re.compile(r'\?(?:"([^"]+)"|(\S+))')


def describe(request: bytes, invocations: Sequence[Invocation]) -> RawResponse:
    """The answer: one stream with the end of the function's last invocation; none if it hasn't run."""
    name = str(json.loads(request).get("logGroupName", "")).removeprefix(_GROUP_PREFIX)
    last = next((i for i in reversed(invocations) if i.function_name == name), None)
    streams = []
    if last is not None:
        written = int((last.at.timestamp() + last.latency) * 1000)
        streams = [{"logStreamName": last.request_id, "lastEventTimestamp": written}]
    return 200, {}, json.dumps({"logStreams": streams}).encode()


def filter_events(request: bytes, invocations: Sequence[Invocation]) -> RawResponse:
    """The answer to FilterLogEvents: the lines of a function's invocations that have one of the pattern's terms.

    Of patterns, only ``?term`` and ``?"a phrase"`` are supported here.
    """
    parameters = json.loads(request)
    name = str(parameters["logGroupName"]).removeprefix(_GROUP_PREFIX)
    terms = [quoted or bare for quoted, bare in _TERM.findall(parameters.get("filterPattern", ""))]
    start = parameters.get("startTime", 0)
    events = [
        {"logStreamName": i.request_id, "timestamp": int(i.at.timestamp() * 1000), "message": line}
        for i in invocations
        if i.function_name == name and (i.at.timestamp() + i.latency) * 1000 >= start
        for line in [*i.output.splitlines(), *i.traceback.splitlines()]
        if any(term in line for term in terms)
    ]
    return 200, {}, json.dumps({"events": events}).encode()
