"""EventBridge's TestEventPattern, which moto lacks: whether a pattern matches an event, as moto's delivery decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from moto.events.models import EventPattern

from local.aws.interceptor import json_error

if TYPE_CHECKING:
    from local.aws.interceptor import RawResponse

_MANDATORY = ("id", "account", "source", "time", "region", "resources", "detail-type")
"""docs.aws.amazon.com/eventbridge/latest/APIReference/API_TestEventPattern.html."""


def test(body: bytes) -> RawResponse:
    """The answer to a request of TestEventPattern."""
    request = json.loads(body)
    event = json.loads(request["Event"])
    if missing := [field for field in _MANDATORY if field not in event]:
        return json_error(400, "ValidationException", f"Event does not contain {', '.join(missing)}")
    matches = EventPattern.load(request["EventPattern"]).matches_event(event)
    return 200, {}, json.dumps({"Result": matches}).encode()
