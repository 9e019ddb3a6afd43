from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from local.kubernetes import kinds
from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.errors import ApiError
from local.kubernetes.registry.store import Store
from relay.relay import Relay
from shared.api import labels as names
from shared.cluster.client import Client
from shared.cluster.connect import configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_sqs import SQSClient

    from shared.cluster.resources import Resource

CLUSTER = "demo"
BUS = "tenon-demo"
_TIMEOUT_SECONDS = 20.0


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 21, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(now=clock.now)


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    with Server(store) as running:
        yield running


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_DEFAULT_REGION", "eu-central-1"),
    ):
        monkeypatch.setenv(name, value)
    with mock_aws():
        yield


class Bus:
    """A bus whose events all go to a queue."""

    def __init__(self) -> None:
        self.events = boto3.client("events")
        self._sqs: SQSClient = boto3.client("sqs")
        self._queue = self._sqs.create_queue(QueueName="all")["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        self.events.create_event_bus(Name=BUS)
        self.events.put_rule(Name="all", EventBusName=BUS, EventPattern=json.dumps({"source": ["tenon.relay"]}))
        self.events.put_targets(Rule="all", EventBusName=BUS, Targets=[{"Id": "all", "Arn": arn}])

    def bodies(self) -> list[str]:
        """The messages received since the last call."""
        arrived: list[str] = []
        while messages := self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                arrived.append(message["Body"])
                self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return arrived

    def hints(self) -> list[tuple[str, str]]:
        """The hints received since the last call, as (detail-type, key)."""
        return sorted(
            (event["detail-type"], key) for event in map(json.loads, self.bodies()) for key in event["detail"]["keys"]
        )


@pytest.fixture
def bus(aws: None) -> Bus:  # noqa: ARG001 (the fake must be there first)
    return Bus()


class World:
    """A relay between a served API and a bus, on a clock that tests set."""

    def __init__(self, server: Server, store: Store, bus: Bus, clock: Clock) -> None:
        self.server, self.store, self.bus, self.clock = server, store, bus, clock
        self._client = Client(configuration(server.url, server.ca_pem, lambda: ADMIN_TOKEN), attempts=1)
        self.relay = Relay(self._client, bus.events, bus=BUS, cluster=CLUSTER, now=clock.now, max_backoff=0.05)

    def version_of(self, resource: Resource) -> int:
        try:
            return self.store.version_of(self.store.kind(resource.api_version, resource.kind))
        except ApiError:
            return 0

    def add_pod(self, name: str, *, node: str = "", unschedulable: bool = True, **spec: object) -> None:
        """A pod; without a node, the scheduler marks it Unschedulable."""
        self.store.create(kinds.PODS, pod(name, node=node, **spec))
        if unschedulable and not node:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            patch = {"status": {"conditions": [condition]}}
            self.store.patch(kinds.PODS, name, patch, namespace="default", subresource="status")

    def settle(self) -> None:
        """Wait until the relay has observed every change of the store."""
        self.until(lambda: self.relay.has_observed(self.version_of))

    def until(self, holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + _TIMEOUT_SECONDS
        while not holds():
            assert time.monotonic() < ends, "the relay did not observe every change"
            time.sleep(0.002)

    def sent_hints(self, *, after: float = 1.0) -> list[tuple[str, str]]:
        """The hints that the relay sends for the observed changes, after the idle duration."""
        self.settle()
        self.clock.time += timedelta(seconds=after)
        self.relay.step(self.clock.time)
        return self.bus.hints()

    def start(self) -> None:
        """Start, and wait until the existing objects are listed."""
        self.relay.start()
        built_in = [w for w in self.relay.watchers if w.name in {"watch pods", "watch nodes"}]
        self.until(lambda: all(watcher.lists for watcher in built_in))

    def close(self) -> None:
        self.relay.stop()
        self._client.close()


@pytest.fixture
def world(server: Server, store: Store, bus: Bus, clock: Clock) -> Iterator[World]:
    new_world = World(server, store, bus, clock)
    new_world.start()
    yield new_world
    new_world.close()


def pod(name: str, *, node: str = "", **more: object) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x"}], **more}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {names.NODEPOOL: "default", names.INITIALIZED: "true"},
            "finalizers": [names.TERMINATION_FINALIZER],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "2"}},
    }
