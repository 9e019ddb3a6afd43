"""Handovers of the relay function while objects come and go: every change is sent, whoever observed it."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter, deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from functions.relay import tenure
from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests
from local.kubernetes import kinds
from local.world import World
from local.world.options import Options
from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = "every-hint"
_KEPT_NODES = 20
_FAST, _SLOW = 0.02, 0.1
"""Seconds between changes, in real time, so that they come at every moment of a handover. A world that is changed fast
takes seconds for a handover, and a tenth of a second else."""
MANAGED = {"karpenter.sh/nodepool": "default", "karpenter.sh/initialized": "true"}
READY = {"type": "Ready", "status": "True"}


class Churn(threading.Thread):
    """Creates and deletes nodes and pods in real time. ``expected``: each change, as its type of hint and key.

    Nothing of it is still there when the next relay lists everything, so a hint that is lost is never sent later.
    """

    def __init__(self, world: World, pause: float) -> None:
        super().__init__(daemon=True)
        self._pause = pause
        self._store = world.store
        self._stopping = threading.Event()
        self._nodes: deque[str] = deque()
        self.expected: set[tuple[str, str]] = set()

    def run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            self._round(f"n{number}")

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _round(self, name: str) -> None:
        store = self._store
        node = {"metadata": {"name": name, "labels": MANAGED}, "status": {"conditions": [READY]}}
        store.create(kinds.NODES, node)
        spec: dict[str, Any] = {"nodeName": name, "containers": [{"name": "c", "image": "x"}]}
        pod = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        store.create(kinds.PODS, pod, namespace="default")
        self._stopping.wait(self._pause)
        store.delete(kinds.PODS, name, namespace="default", grace_period_seconds=0)
        self.expected.add((hints.NODES_EMPTIED, name))
        self._nodes.append(name)
        if len(self._nodes) > _KEPT_NODES:
            # Long after its pod: of a node that is gone, nobody needs to know that it is empty.
            oldest = self._nodes.popleft()
            store.delete(kinds.NODES, oldest)
            self.expected.add((hints.NODES_DELETED, oldest))
        self._stopping.wait(self._pause)


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster in which only the relay function runs; a rule of its own takes every hint."""
    options = Options(context={"relay": "function"}, catalog=False, hostility=None)
    with World(cluster="demo", options=options) as running_world:
        events = boto3.client("events")
        bus = cluster_manifests.bus_name("demo")
        for event_bus in ("default", bus):
            for rule in events.list_rules(EventBusName=event_bus)["Rules"]:
                if not rule["Name"].endswith("relay-check"):
                    events.disable_rule(Name=rule["Name"], EventBusName=event_bus)
        queue = boto3.client("sqs").create_queue(QueueName=ALL)["QueueUrl"]
        events.put_rule(Name=ALL, EventBusName=bus, EventPattern=json.dumps({"source": [hints.RELAY]}))
        arn = f"arn:aws:sqs:us-east-1:123456789012:{queue.rsplit('/', 1)[-1]}"
        events.put_targets(Rule=ALL, EventBusName=bus, Targets=[{"Id": "1", "Arn": arn}])
        yield running_world


def sent(world: World) -> Counter[tuple[str, str]]:
    deliveries = [d.event for d in world.aws.event_buses.deliveries if d.rule == ALL]
    return Counter((event["detail-type"], key) for event in deliveries for key in event["detail"]["keys"])


def hand_over(world: World, monkeypatch: pytest.MonkeyPatch, times: int, pause: float) -> Churn:
    """That many handovers, one each minute of simulated time, while objects come and go."""
    monkeypatch.setattr(tenure, "LIFETIME", timedelta(seconds=180))
    world.run_for(timedelta(minutes=2))
    churn = Churn(world, pause)
    churn.start()
    try:
        world.run_until(lambda: ended(world) >= times, limit=timedelta(minutes=3 * times))
    finally:
        churn.stop()
    world.run_for(timedelta(minutes=2))
    return churn


def ended(world: World) -> int:
    results = [i.result for i in world.aws.functions.invocations if i.function == function_sizes.RELAY]
    return results.count({"relay": "ended"})


def check(world: World, churn: Churn, *, handovers: int) -> None:
    hints_sent = sent(world)
    assert ended(world) >= handovers
    assert world.failures() == []
    assert len(churn.expected) > handovers
    assert churn.expected - set(hints_sent) == set()
    twice = [key for key in churn.expected if hints_sent[key] > 1]
    assert len(twice) <= len(churn.expected) / 100


def test_no_hint_is_lost_in_ten_handovers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    check(world, hand_over(world, monkeypatch, 10, _FAST), handovers=10)


@pytest.mark.long
def test_no_hint_is_lost_in_a_thousand_handovers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    check(world, hand_over(world, monkeypatch, 1_000, _SLOW), handovers=1_000)
