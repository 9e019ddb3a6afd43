"""Events on objects: written once, whatever the number of processes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from local.kubernetes.apiserver.http import Response
from shared.api.meta import ObjectRef
from shared.cluster import resources
from shared.cluster.events import Recorder

if TYPE_CHECKING:
    from local.kubernetes.apiserver.server import Server
    from shared.cluster.client import Client
    from tests.integration.cluster.conftest import Clock

POD = ObjectRef(api_version="v1", kind="Pod", namespace="default", name="web", uid="1")
NODE = ObjectRef(api_version="v1", kind="Node", name="n1", uid="2")


def list_events(client: Client) -> list[dict[str, Any]]:
    return [item for page in client.list_pages(resources.EVENTS.path()) for item in json.loads(page)["items"]]


def test_an_event_names_its_object_and_reason(client: Client, clock: Clock) -> None:
    recorder = Recorder(client, now=clock.now)
    recorder.record(POD, "Warning", "FailedScheduling", "no pool fits")
    recorder.record(NODE, "Normal", "Draining", "2 pods to go")
    on_node, on_pod = sorted(list_events(client), key=lambda event: str(event["involvedObject"]["kind"]))
    assert on_pod["metadata"]["namespace"] == "default"
    assert on_pod["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web",
        "namespace": "default",
        "uid": "1",
    }
    assert (on_pod["type"], on_pod["reason"], on_pod["message"]) == ("Warning", "FailedScheduling", "no pool fits")
    assert on_pod["count"] == 1
    assert on_pod["source"] == {"component": "tenon"}
    assert on_node["metadata"]["namespace"] == "default"


def test_a_repeated_event_is_one_object_for_all_processes(client: Client, clock: Clock) -> None:
    processes = [Recorder(client, now=clock.now) for _ in range(3)]
    for _ in range(4):
        for process in processes:
            process.record(POD, "Warning", "FailedScheduling", "no pool fits")
        clock.time += timedelta(minutes=1)
    [event] = list_events(client)
    assert event["count"] == 1


def test_a_repeated_event_is_counted_at_most_every_five_minutes(client: Client, clock: Clock) -> None:
    processes = [Recorder(client, now=clock.now) for _ in range(3)]
    started = clock.time
    for _ in range(60):
        for process in processes:
            process.record(POD, "Warning", "FailedScheduling", "no pool fits")
        clock.time += timedelta(minutes=1)
    [event] = list_events(client)
    assert event["count"] == 12
    assert event["firstTimestamp"] == started.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert event["lastTimestamp"] == (started + timedelta(minutes=55)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_caller_may_want_its_event_counted_less_often(client: Client, clock: Clock) -> None:
    processes = [Recorder(client, now=clock.now) for _ in range(3)]
    for _ in range(60):
        for process in processes:
            process.record(NODE, "Warning", "NodeRepairBlocked", "too many", repeat_after=timedelta(minutes=15))
        clock.time += timedelta(minutes=1)
    [event] = list_events(client)
    assert event["count"] == 4


def test_another_message_is_another_event(client: Client, clock: Clock) -> None:
    recorder = Recorder(client, now=clock.now)
    recorder.record(POD, "Warning", "FailedScheduling", "no pool fits")
    recorder.record(POD, "Warning", "FailedScheduling", "limits are reached")
    assert len(list_events(client)) == 2


def test_a_failed_write_does_not_fail_the_caller_and_is_retried(server: Server, client: Client, clock: Clock) -> None:
    recorder = Recorder(client, now=clock.now)
    server.intercept = lambda _: Response(403)
    recorder.record(POD, "Warning", "FailedScheduling", "no pool fits")
    server.intercept = None
    recorder.record(POD, "Warning", "FailedScheduling", "no pool fits")
    assert len(list_events(client)) == 1


def test_a_long_message_is_truncated(client: Client, clock: Clock) -> None:
    Recorder(client, now=clock.now).record(POD, "Normal", "Long", "x" * 5000)
    [event] = list_events(client)
    assert len(event["message"]) == 1024
    assert event["message"].endswith("…")


def test_of_many_events_at_once_the_latest_are_remembered(server: Server, client: Client, clock: Clock) -> None:
    recorder, requests = Recorder(client, now=clock.now, max_remembered=4), []
    server.intercept = lambda request: requests.append(request.verb)
    texts = [f"message {i}" for i in range(9)]

    def asks(text: str) -> bool:
        requests.clear()
        recorder.record(POD, "Normal", "Draining", text)
        return bool(requests)

    assert all(asks(text) for text in texts)
    assert not any(asks(text) for text in texts[-2:])
    assert all(asks(text) for text in texts[:4])
    assert len(list_events(client)) == len(texts)
