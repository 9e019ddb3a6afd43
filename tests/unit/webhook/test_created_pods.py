"""When hints about created pods are due: not before kube-scheduler has had time for their pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from functions.provisioner.created_pods import SETTLING_SECONDS, _early
from shared.base import hints
from shared.base.hints import Hint
from shared.base.queues import Message

SENT = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize("age", [0.0, 0.4, 1.0, 2.1, 2.9])
def test_a_hint_that_comes_back_is_due_then(age: float) -> None:
    message = Message(id="m", hint=Hint(source=hints.WEBHOOK, detail_type=hints.PODS_CREATED, cluster="demo"))
    event = {"Records": [{"messageId": "m", "attributes": {"SentTimestamp": str(int(SENT.timestamp() * 1000))}}]}
    delays = _early(event, [message], SENT + timedelta(seconds=age))
    assert SETTLING_SECONDS <= age + delays["m"] <= SETTLING_SECONDS + 1
    assert _early(event, [message], SENT + timedelta(seconds=age + delays["m"])) == {}
