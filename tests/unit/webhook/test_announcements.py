"""How many messages the webhook sends: one for the pods of two seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from functions.webhook.admission_review import CreatedPod
from functions.webhook.handler import _announce
from functions.webhook.settings import WebhookSettings
from shared.base import runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("sqs", region_name="us-east-1")


def test_the_pods_of_two_seconds_wait_for_one_message_only(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="provisioning.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sent: list[str] = []
    sqs.meta.events.register("before-call.sqs.SendMessage", lambda **_: sent.append("message"))
    settings = WebhookSettings(cluster_name="demo", provisioning_queue_url=url, webhook_digest="")
    with runtime.using(runtime.Runtime(environ={}, cache={"aws:sqs-short-timeout": sqs})):
        for milliseconds in (0, 500, 1900):
            pod = CreatedPod(uid="u", key=f"default/web-{milliseconds}", may_need_node=True)
            _announce(pod, settings, NOW + timedelta(milliseconds=milliseconds))
        assert len(sent) == 1
        _announce(CreatedPod(uid="u", key="default/late", may_need_node=True), settings, NOW + timedelta(seconds=2))
    assert len(sent) == 2
