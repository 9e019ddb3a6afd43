"""A warm provisioner: from the message that it is handed to the CreateFleet request that it sends.

The real handler runs, against a canned Kubernetes API in another process and a local AWS in this one. What counts is
the processor time of the thread it runs in, less what the local AWS takes of it to answer.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3

from bench.canned import canned
from functions.provisioner import handler
from local.aws import backends
from local.aws.cloud import Cloud
from local.aws.gate import Gate
from local.world import shelf
from shared import host
from shared.cluster.reading import Reader
from shared.instances import store
from shared.provisioning import deciding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLUSTER = "demo"
REGION = "us-east-1"
RUNS = 5
_ENVIRON = {
    "TENON_CLUSTER_NAME": CLUSTER,
    "TENON_EVENT_BUS_NAME": "tenon-demo",
    "TENON_TABLE_NAME": "tenon",
    "TENON_CATALOG_BUCKET": "tenon-catalog",
    "TENON_NODE_INSTANCE_PROFILE": "KarpenterInstanceProfile",
    "TENON_DEAD_LETTER_QUEUE_URL": "none",
}


class Stopwatch:
    """Processor seconds of this thread since :meth:`start`, by what they were spent on."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.until_fleet = 0.0

    def start(self) -> None:
        """From now."""
        self.spent = {}
        self.until_fleet = 0.0
        self._began = time.thread_time()

    def over(self, what: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The work, with the time it takes counted under that name."""

        @functools.wraps(work)
        def timed(*args: Any, **more: Any) -> Any:  # noqa: ANN401 (whatever the work takes and gives)
            began, answering = time.thread_time(), self.spent.get("aws", 0.0)
            try:
                return work(*args, **more)
            finally:
                within = self.spent.get("aws", 0.0) - answering
                self.spent[what] = self.spent.get(what, 0.0) + time.thread_time() - began - within

        return timed

    def answering(self, gate: Gate, event_name: str, request: Any, **more: object) -> Any:  # noqa: ANN401 (botocore's)
        """The local AWS's own time; CreateFleet ends what is measured."""
        if event_name.endswith("CreateFleet") and not self.until_fleet:
            self.until_fleet = time.thread_time() - self._began - self.spent.get("aws", 0.0)
        began = time.thread_time()
        try:
            return _answer(gate, event_name, request, **more)
        finally:
            self.spent["aws"] = self.spent.get("aws", 0.0) + time.thread_time() - began


_answer = Gate.__call__


def measure(nodes: int, pods: int) -> list[dict[str, float]]:
    """Seconds of each warm run by part, ``all`` until CreateFleet was asked. A first run warms and is left out."""
    watch = Stopwatch()
    runs = []

    def answer(gate: Gate, *args: Any, **more: Any) -> Any:  # noqa: ANN401 (botocore's)
        return watch.answering(gate, *args, **more)

    with _world(nodes, pods) as warm, contextlib.ExitStack() as stack:
        for place, name, what in (
            (Reader, "read", "snapshot"),
            (deciding.Deciding, "_supply", "supply"),
            (deciding, "schedule", "schedule"),
            (deciding.Deciding, "_write", "claims"),
        ):
            stack.enter_context(backends.replaced(place, name, watch.over(what, getattr(place, name))))
        stack.enter_context(backends.replaced(Gate, "__call__", answer))
        for run in range(RUNS + 1):
            with host.using(host.Host(environ=_ENVIRON, warm=warm)):
                watch.start()
                answered = handler.handle(_message(run), _context(run))
            assert answered == {"batchItemFailures": []}, answered
            assert watch.until_fleet, "CreateFleet was never asked"
            runs.append({**watch.spent, "all": watch.until_fleet})
    return runs[1:]


@contextlib.contextmanager
def _world(nodes: int, pods: int) -> Iterator[dict[str, Any]]:
    """A canned cluster and a local account; gives what a process keeps."""
    now = datetime.now(UTC)
    raw = shelf.taken(region=REGION, seed=0, now=now)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "x")
    with (
        canned(nodes, pods) as (url, authority),
        Cloud(now=lambda: datetime.now(UTC), sleep=lambda _: None, region=REGION) as cloud,
    ):
        cloud.prepare(
            cluster=CLUSTER,
            version="1.34",
            endpoint=url,
            certificate_authority=base64.b64encode(authority.encode()).decode(),
        )
        boto3.client("s3").create_bucket(Bucket=_ENVIRON["TENON_CATALOG_BUCKET"])
        keys: Any = [("pk", "HASH"), ("sk", "RANGE")]
        boto3.client("dynamodb").create_table(
            TableName=_ENVIRON["TENON_TABLE_NAME"],
            KeySchema=[{"AttributeName": n, "KeyType": t} for n, t in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        with host.using(host.Host(environ={})):
            store.save(boto3.client("s3"), _ENVIRON["TENON_CATALOG_BUCKET"], CLUSTER, raw)
        yield {}


def _message(run: int) -> dict[str, Any]:
    now = datetime.now(UTC)
    body = {
        "version": "0",
        "id": f"m-{run}",
        "source": "aws.events",
        "detail-type": "Scheduled Event",
        "time": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "detail": {},
    }
    return {
        "Records": [
            {
                "messageId": f"m-{run}",
                "receiptHandle": "x",
                "body": json.dumps(body),
                "attributes": {"ApproximateReceiveCount": "1"},
                "eventSourceARN": f"arn:aws:sqs:{REGION}:123456789012:provisioning.fifo",
            }
        ]
    }


def _context(run: int) -> Any:  # noqa: ANN401 (Lambda's own)
    return SimpleNamespace(
        function_name="provisioner", memory_limit_in_mb=1024, invoked_function_arn="arn:x", aws_request_id=f"run-{run}"
    )
