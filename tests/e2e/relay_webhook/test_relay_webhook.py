"""The admission webhook in place of a relay: new pods get nodes in seconds, and nothing depends on the webhook."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from functions.provisioner import created_pods
from functions.webhook.handler import BATCH_SECONDS
from infra import function_sizes
from local.faults import Fault
from local.kubernetes import kinds
from local.world import sample_objects
from local.world.webhook_calls import LOCAL_PATH
from tests.unit.webhook.reviews import review

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.aws.invocation import Invocation
    from local.world import World

    Load = Callable[[str], list[dict[str, Any]]]

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
HINT = created_pods.SETTLING_SECONDS + 3
"""Seconds; the last ones are for the work of this process, which counts on the world's clock."""


def invocations(world: World, function: str) -> list[Invocation]:
    return [i for i in world.aws.functions.invocations if i.function == function]


def messages(world: World) -> set[str]:
    """The bodies of the webhook's messages."""
    return {message.body for message in world.aws.queues.delivered if "Pods Created" in message.body}


def seconds_until_claimed(world: World) -> float:
    """From the first pod to the first NodeClaim."""
    first = min(event.at for event in world.timeline.of("pod created"))
    return (min(event.at for event in world.timeline.of("claim created")) - first).total_seconds()


def between_sweeps(world: World) -> None:
    """Run until just after a sweep, so that the next one is most of a minute away."""
    world.run_for(2 * MINUTE)
    before = len(world.aws.event_buses.deliveries)
    world.run_until(lambda: len(world.aws.event_buses.deliveries) > before)
    world.run_for(5 * SECOND)


def pod(name: str, requests: dict[str, str]) -> dict[str, Any]:
    container = {"name": "app", "image": "app", "resources": {"requests": requests}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def lose_webhook(world: World, fault: Fault) -> None:
    world.faults.inject(lambda point: point.service == "webhook", fault, times=10_000)


@pytest.fixture
def ready(world: World, load: Load) -> World:
    world.apply(load("spot-default.yaml"))
    between_sweeps(world)
    return world


@pytest.mark.flow
def test_new_pods_get_nodes_in_seconds_and_no_pod_is_tenons(ready: World) -> None:
    assert ready.pods() == []
    ready.scale("default", "inflate", 5)
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 5)
    assert seconds_until_claimed(ready) <= HINT
    assert {p["metadata"]["labels"]["app"] for p in ready.pods()} == {"inflate"}
    assert not [d for d in ready.store.list(kinds.DEPLOYMENTS) if "tenon" in d["metadata"]["name"]]
    assert not invocations(ready, function_sizes.RELAY)
    assert ready.failures() == []
    assert ready.dead_letters() == []


def test_pods_and_nodes_go_as_they_came_by_the_sweeps(ready: World) -> None:
    ready.scale("default", "inflate", 5)
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 5)
    ready.scale("default", "inflate", 0)
    ready.run_until(lambda: not ready.nodes() and not ready.instances(), limit=timedelta(minutes=15))
    ready.run_until_idle()
    assert ready.failures() == []
    assert ready.dead_letters() == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(disconnect="before"), id="unreachable"),
        pytest.param(Fault(delay=30), id="slow"),
        pytest.param(Fault(code="InternalServerError", status=502), id="failing"),
    ],
)
def test_without_the_webhook_pods_are_created_and_the_sweep_finds_them(ready: World, fault: Fault) -> None:
    # A slow webhook's function still runs; here it can't.
    ready.faults.inject_aws("sqs", "SendMessage", Fault(code="InternalError", status=500), times=1000, caller="webhook")
    lose_webhook(ready, fault)
    before = ready.clock.now()
    ready.apply([pod("alone", {"cpu": "100m"})])
    assert ready.clock.now() - before < timedelta(seconds=1.5)
    ready.scale("default", "inflate", 3)
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 4)
    assert seconds_until_claimed(ready) <= 65
    assert not messages(ready)
    assert ready.failures() == []


def test_a_function_without_its_queue_allows_the_pod_all_the_same(ready: World) -> None:
    ready.faults.inject_aws("sqs", "SendMessage", Fault(code="InternalError", status=500), caller="webhook")
    ready.scale("default", "inflate", 1)
    ready.run_for(SECOND)
    assert len(ready.pods()) == 1
    [invocation] = invocations(ready, function_sizes.WEBHOOK)
    assert invocation.result["statusCode"] == 200
    assert [line["message"] for line in invocation.logs] == ["The hint was not sent"]
    # The next pod of the same seconds has the message sent.
    ready.scale("default", "inflate", 2)
    ready.run_until(lambda: bool(ready.claims()))
    assert seconds_until_claimed(ready) <= HINT + 2


def test_a_burst_of_pods_is_few_messages_and_few_decisions(ready: World) -> None:
    ready.scale("default", "inflate", 1000)
    ready.run_until(lambda: len(ready.pods()) == 1000)
    created = [event.at for event in ready.timeline.of("pod created")]
    intervals = (max(created) - min(created)).total_seconds() / BATCH_SECONDS + 1
    ready.run_for(20 * SECOND)
    assert len(invocations(ready, function_sizes.WEBHOOK)) == 1000
    assert 1 <= len(messages(ready)) <= intervals + 1
    decided = [i for i in invocations(ready, function_sizes.PROVISIONER) if "Provisioned" in i.output]
    hinted = [i for i in decided if i.trigger != "Scheduled Event"]  # a sweep may come in between
    assert len(hinted) <= len(messages(ready)) * created_pods.MAX_RECEIVES
    assert len(decided) <= 8
    assert seconds_until_claimed(ready) <= intervals * BATCH_SECONDS + HINT + 4
    assert ready.dead_letters() == []


def test_pods_that_need_no_new_node_give_no_hint(ready: World) -> None:
    ready.scale("default", "inflate", 1)
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 1)
    ready.run_for(10 * SECOND)
    called = len(invocations(ready, function_sizes.WEBHOOK))
    ready.apply([sample_objects.daemon_set("logs", {"cpu": "10m"})])
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 2)
    gated = pod("gated", {"cpu": "100m"})
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    node = ready.nodes()[0]["metadata"]["name"]
    bound = pod("bound", {"cpu": "100m"})
    bound["spec"]["nodeName"] = node
    ready.apply([gated, bound])
    assert len(invocations(ready, function_sizes.WEBHOOK)) == called


def test_new_pods_with_room_cost_a_list_and_no_decision(ready: World) -> None:
    ready.scale("default", "inflate", 1)
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 1)
    between_sweeps(ready)
    before = len(invocations(ready, function_sizes.PROVISIONER))
    ready.apply([pod("small", {"cpu": "1m"})])
    ready.run_for(10 * SECOND)
    new = invocations(ready, function_sizes.PROVISIONER)[before:]
    assert 1 <= len(new) <= 2
    assert not [i for i in new if "Provisioned" in i.output]
    assert ready.aws.queues.empty()


def test_forged_requests_do_nothing(ready: World) -> None:
    url = ready.aws.deployed.outputs["WebhookUrl"]
    body = msgspec.json.encode(review())
    post = ready.aws.function_urls.request
    for path in ("", "x", f"{LOCAL_PATH}x", f"{LOCAL_PATH}/x", LOCAL_PATH.upper()):
        assert post("POST", f"{url}{path}", body) == (404, b"")
    for forged in (b"", b"{}", b"\xff", body[:-5], msgspec.json.encode(review(operation="DELETE"))):
        assert post("POST", f"{url}{LOCAL_PATH}", forged, content_type="application/octet-stream") == (400, b"")
    status, _ = post("POST", f"{url}{LOCAL_PATH}", body)
    assert status == 200
    logs = "".join(i.output for i in invocations(ready, function_sizes.WEBHOOK))
    assert "CONFIDENTIAL" not in logs
    assert LOCAL_PATH not in logs
    assert "team/web-1" in logs
    # A hint about a pod that doesn't exist is a list, not a decision.
    ready.run_for(20 * SECOND)
    assert ready.claims() == []
    assert ready.dead_letters() == []


def test_a_flood_takes_no_more_than_the_functions_own_concurrency(world: World) -> None:
    function = world.aws.deployed.function(function_sizes.WEBHOOK)
    assert function.reserved_concurrency == 5


def test_hints_that_fail_are_given_up_before_they_are_dead_letters(ready: World) -> None:
    ready.faults.inject_kubernetes("GET", "/pods", Fault(code="InternalError", status=500), times=100_000)
    ready.scale("default", "inflate", 1)
    ready.run_for(3 * MINUTE)
    received = [i for i in invocations(ready, function_sizes.PROVISIONER) if i.trigger == "Pods Created"]
    assert len(received) == created_pods.MAX_RECEIVES
    # The sweeps of these minutes are.
    assert {letter.group_id for letter in ready.dead_letters()} <= {"demo-sweep"}
    ready.faults.clear()
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 1)


def test_a_webhook_that_dies_at_any_write_loses_one_hint_at_most(ready: World) -> None:
    points = ready.faults.crash_around_each_write(function_sizes.WEBHOOK)
    for count in range(1, 5):
        ready.scale("default", "inflate", count)
        ready.run_for(3 * SECOND)
        assert len(ready.pods()) == count
    assert points.calls == {"sqs SendMessage"}
    assert points.remaining == set()
    ready.run_until(lambda: len(ready.pods(phase="Running")) == 4)
    assert ready.dead_letters() == []


def test_a_pod_that_waits_for_long_is_no_sign_of_a_silent_relay(world: World) -> None:
    world.apply([pod("waiting", {"cpu": "1"})])
    world.run_for(15 * MINUTE)
    assert world.pending()
    assert "relay-silent" not in "".join(i.output for i in invocations(world, function_sizes.PROVISIONER))
