"""CapacityBuffers that follow a queue, an alarm or events: room is bought before a pod exists, and given up after."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from cli.status import deployment
from local.faults import Fault
from local.world import Options, World, sample_objects
from shared.api.capacity_buffer import READY_FOR_PROVISIONING
from shared.api.labels import ALARM_UNTIL, EVENT_UNTIL, QUEUE_CHUNKS, QUEUE_UNTIL
from tests.e2e.world_state import capacity_buffer, events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

REQUESTS = {"cpu": "900m", "memory": "900Mi"}
ON_DEMAND = {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["2", "4", "8"]}
NAMED = {
    "bufferQueues": "orders,missing",
    "bufferAlarms": "checkout-latency",
    "bufferEvents": "shop.campaigns/Campaign Announced,shop.orders/Order Placed",
}
QUEUE, ALARM = "tenon-demo-buffers", "checkout-latency"
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
AT_ONCE = 3 * SECOND

Json = dict[str, Any]


@pytest.fixture
def world(load: Callable[[str], list[Json]]) -> Iterator[World]:
    """A cluster with the three buffers of capacity-buffer-signals.yaml, none of which wants chunks."""
    with World(options=Options(context=NAMED)) as world:
        boto3.client("sqs").create_queue(QueueName="orders")
        boto3.client("cloudwatch").put_metric_alarm(
            AlarmName=ALARM,
            ComparisonOperator="GreaterThanThreshold",
            EvaluationPeriods=1,
            MetricName="Latency",
            Namespace="Shop",
            Period=60,
            Statistic="Average",
            Threshold=1,
        )
        set_alarm("OK")
        disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
        pool = sample_objects.node_pool(ON_DEMAND, disruption=disruption)
        world.apply([sample_objects.node_class(world), pool, sample_objects.deployment("web", 0, REQUESTS)])
        world.apply(load("capacity-buffer-signals.yaml"))
        world.run_for(3 * MINUTE)
        assert [capacity_buffer(world, name)["status"]["replicas"] for name in ("orders", "checkout", "campaign")] == [
            0,
            0,
            0,
        ]
        assert world.nodes() == []
        yield world
        assert [failure for failure in world.failures() if "Crash: " not in failure] == []


def annotations_of(world: World, name: str) -> dict[str, str]:
    values: dict[str, str] = capacity_buffer(world, name)["metadata"]["annotations"]
    return values


def chunks(world: World, name: str) -> int:
    return int(capacity_buffer(world, name)["status"]["replicas"])


def buffer(name: str, **of_tenon: str) -> Json:
    """A buffer of two pods with these annotations."""
    named = {f"tenon.sh/{key.replace('_', '-')}": value for key, value in of_tenon.items()}
    spec = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": 2}
    metadata = {"name": name, "namespace": "default", "annotations": named}
    return {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": metadata, "spec": spec}


def send(world: World, count: int) -> None:
    for number in range(count):
        world.aws.queues.send("orders", f"order {number}")


def set_alarm(state: str) -> None:
    boto3.client("cloudwatch").set_alarm_state(AlarmName=ALARM, StateValue=state, StateReason="a test")  # type: ignore[arg-type]  # its literals


def announce(world: World, *, ago: timedelta = timedelta(), detail_type: str = "Campaign Announced") -> None:
    time = world.clock.now() - ago
    entry: Any = {"Source": "shop.campaigns", "DetailType": detail_type, "Detail": '{"secret": "s"}', "Time": time}
    assert boto3.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0


def first_claim(world: World, since: datetime) -> timedelta:
    return min(event.at for event in world.timeline.of("claim created") if event.at >= since) - since


def warnings(world: World, name: str) -> list[Json]:
    return events(world, "DemandUnknown", name=name)


def reads(world: World) -> int:
    return sum(call.operation == "GetQueueAttributes" and call.caller == "buffers" for call in world.aws.calls.all)


def after_a_read(world: World) -> None:
    before = reads(world)
    world.run_until(lambda: reads(world) > before)


@pytest.mark.flow
@pytest.mark.calm_world
@pytest.mark.parametrize("messages", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_messages_raise_a_buffer_to_its_cap_within_a_minute_and_an_empty_queue_gives_it_up(
    world: World, messages: int
) -> None:
    after_a_read(world)  # the worst moment: the next read is half a minute away
    since = world.clock.now()
    send(world, messages)
    world.run_until(lambda: chunks(world, "orders") == 10, limit=2 * MINUTE)
    assert world.clock.now() - since <= MINUTE
    assert first_claim(world, since) <= MINUTE
    world.run_until(lambda: sum(int(n["status"]["capacity"]["cpu"]) for n in world.nodes()) >= 10)
    assert annotations_of(world, "orders")[QUEUE_CHUNKS] == "10"
    world.run_for(20 * MINUTE)  # it is renewed
    assert chunks(world, "orders") == 10

    boto3.client("sqs").purge_queue(QueueUrl=boto3.client("sqs").get_queue_url(QueueName="orders")["QueueUrl"])
    world.run_for(4 * MINUTE)
    assert chunks(world, "orders") == 10  # a queue that is empty for a moment doesn't cost its nodes
    world.run_for(8 * MINUTE)
    assert chunks(world, "orders") == 0
    assert not {QUEUE_CHUNKS, QUEUE_UNTIL} & annotations_of(world, "orders").keys()
    world.run_until(lambda: world.nodes() == [], limit=5 * MINUTE)


@pytest.mark.calm_world
def test_both_halves_of_a_minute_are_soon_enough(world: World) -> None:
    """Reads are 30 s apart, whichever came last."""
    waits = []
    for wanted in (3, 6):
        after_a_read(world)
        since = world.clock.now()
        send(world, 300)
        world.run_until(lambda wanted=wanted: chunks(world, "orders") == wanted, limit=2 * MINUTE)  # type: ignore[misc]  # a bound default
        waits.append(world.clock.now() - since)
    assert max(waits) <= 35 * SECOND


@pytest.mark.calm_world
def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    send(world, 500)
    world.run_until(lambda: chunks(world, "orders") == 5)
    versions = set()
    for _ in range(40):
        world.run_for(30 * SECOND)
        metadata = capacity_buffer(world, "orders")["metadata"]
        versions.add(metadata["annotations"][QUEUE_UNTIL])
    assert len(versions) <= 6  # twenty minutes, renewed every four to five


@pytest.mark.flow
@pytest.mark.calm_world
def test_an_event_raises_a_buffer_at_once_and_for_as_long_as_it_says(world: World) -> None:
    since = world.clock.now()
    announce(world)
    world.run_until(lambda: bool(world.claims()))
    assert first_claim(world, since) <= AT_ONCE
    world.run_for(5 * SECOND)
    assert chunks(world, "campaign") == 4
    world.run_until(lambda: chunks(world, "campaign") == 0, limit=30 * MINUTE)
    assert timedelta(minutes=20) <= world.clock.now() - since <= timedelta(minutes=22, seconds=30)
    world.run_until(lambda: world.nodes() == [], limit=5 * MINUTE)
    bodies = [m.body for m in world.aws.queues.delivered if m.queue == QUEUE]
    assert bodies
    assert not any("secret" in body for body in bodies)


@pytest.mark.calm_world
def test_an_event_that_comes_twice_or_late_raises_no_longer_than_once(world: World) -> None:
    announce(world, ago=15 * MINUTE)
    world.run_until(lambda: chunks(world, "campaign") == 4, limit=MINUTE)
    until = annotations_of(world, "campaign")[EVENT_UNTIL]
    world.redeliver()
    world.run_for(MINUTE)
    assert annotations_of(world, "campaign")[EVENT_UNTIL] == until
    world.run_for(7 * MINUTE)
    assert chunks(world, "campaign") == 0
    announce(world, ago=25 * MINUTE)
    world.run_for(2 * MINUTE)
    assert chunks(world, "campaign") == 0


def test_events_that_no_buffer_follows_and_others_of_the_source_change_nothing(world: World) -> None:
    announce(world, detail_type="Something Else")
    entry: Any = {"Source": "shop.orders", "DetailType": "Order Placed", "Detail": "{}"}
    boto3.client("events").put_events(Entries=[entry])
    world.run_for(3 * MINUTE)
    assert world.claims() == []
    assert world.dead_letters() == []


def test_an_event_is_followed_after_the_function_failed(world: World) -> None:
    fault = Fault(code="InternalError", status=500)
    world.faults.inject_kubernetes("PATCH", "/capacitybuffers/campaign", fault, times=2, caller="buffers")
    announce(world)
    world.run_until(lambda: chunks(world, "campaign") == 4, limit=2 * MINUTE)
    assert world.dead_letters() == []


@pytest.mark.long
def test_wherever_the_function_dies_events_and_queues_are_followed(world: World) -> None:
    world.apply(buffer("brief", event="shop.orders/Order Placed", raise_for="2m", cloudwatch_alarm=ALARM))
    entry: Any = {"Source": "shop.orders", "DetailType": "Order Placed", "Detail": "{}"}
    for lines in range(3, 170, 15):
        world.run_until(lambda: EVENT_UNTIL not in annotations_of(world, "brief") or chunks(world, "brief") == 0)
        world.faults.crash_after_lines("buffers", lines, path="functions/buffers/")
        boto3.client("events").put_events(Entries=[entry])
        world.run_until(lambda: chunks(world, "brief") == 2, limit=2 * MINUTE)
    assert len(world.failures()) >= 8
    assert world.dead_letters() == []


@pytest.mark.calm_world
def test_an_alarm_raises_a_buffer_at_once_and_ok_releases_it(world: World) -> None:
    since = world.clock.now()
    set_alarm("ALARM")
    world.run_until(lambda: bool(world.claims()))
    assert first_claim(world, since) <= AT_ONCE
    world.run_for(30 * MINUTE)
    assert chunks(world, "checkout") == 4
    set_alarm("OK")
    world.run_for(12 * MINUTE)
    assert chunks(world, "checkout") == 0
    assert ALARM_UNTIL not in annotations_of(world, "checkout")
    world.run_until(lambda: world.nodes() == [], limit=5 * MINUTE)


@pytest.mark.calm_world
def test_an_alarm_whose_event_is_lost_is_found_by_the_next_read(world: World) -> None:
    boto3.client("events").disable_rule(Name="tenon-demo.buffer-alarms")
    after_a_read(world)
    since = world.clock.now()
    set_alarm("ALARM")
    world.run_until(lambda: chunks(world, "checkout") == 4, limit=2 * MINUTE)
    assert world.clock.now() - since <= 40 * SECOND


def test_a_forged_alarm_event_changes_nothing(world: World) -> None:
    forged = {
        "source": "aws.cloudwatch",
        "detail-type": "CloudWatch Alarm State Change",
        "time": world.clock.now().isoformat(),
        "detail": {"alarmName": ALARM, "state": {"value": "ALARM"}},
    }
    world.aws.queues.send(QUEUE, json.dumps(forged))
    world.run_for(2 * MINUTE)
    assert chunks(world, "checkout") == 0
    assert world.claims() == []


@pytest.mark.parametrize("body", ["{not json", "[]", '{"source": "shop.other", "detail-type": "x"}'])
def test_a_malformed_message_goes_to_the_dead_letters_and_the_others_are_followed(world: World, body: str) -> None:
    world.aws.queues.send(QUEUE, body)
    announce(world)
    world.run_until(lambda: chunks(world, "campaign") == 4, limit=2 * MINUTE)
    (letter,) = world.dead_letters()
    assert letter.body == body
    assert letter.attributes["reason"]


def test_a_source_that_isnt_named_or_doesnt_exist_is_said_on_its_buffer_and_the_others_go_on(world: World) -> None:
    world.apply(
        [
            buffer("a", sqs_queue="secret"),
            buffer("b", sqs_queue="missing"),
            buffer("c", cloudwatch_alarm="unknown"),
            buffer("d", event="shop/Unknown"),
            buffer("e", raise_for="soon", event="shop.campaigns/Campaign Announced"),
        ]
    )
    send(world, 10_000)
    world.run_for(4 * MINUTE)
    assert chunks(world, "orders") == 10
    said = {name: [event["message"] for event in warnings(world, name)] for name in "abcd"}
    assert said == {
        "a": ['queue "secret" is not named at deployment (-c bufferQueues=…)'],
        "b": ['there is no queue "missing" in this account and Region'],
        "c": ['alarm "unknown" is not named at deployment (-c bufferAlarms=…)'],
        "d": ['event "shop/Unknown" is not named at deployment (-c bufferEvents=…)'],
    }
    assert {event["count"] for name in "abcd" for event in warnings(world, name)} == {1}  # not at each read
    for name in "abcd":
        assert ready(world, name)[:2] == ("True", "Resolved")
    status, reason, message = ready(world, "e")
    assert (status, reason) == ("False", "ResolutionFailed")
    assert message.startswith('metadata.annotations[tenon.sh/raise-for]: "soon" is not allowed; allowed is a duration')


def ready(world: World, name: str) -> tuple[str, str, str]:
    conditions = {c["type"]: c for c in capacity_buffer(world, name)["status"]["conditions"]}
    current = conditions[READY_FOR_PROVISIONING]
    return current["status"], current["reason"], current.get("message", "")


@pytest.mark.long
def test_a_queue_that_cant_be_read_for_a_while_keeps_its_chunks_for_a_while(world: World) -> None:
    send(world, 10_000)
    world.run_until(lambda: chunks(world, "orders") == 10)
    denied = Fault(code="AccessDenied", status=403, message="no")
    world.faults.inject_aws("sqs", "GetQueueAttributes", denied, times=6, caller="buffers")
    world.run_for(3 * MINUTE)
    assert chunks(world, "orders") == 10
    assert [e["message"] for e in warnings(world, "orders")] == ['queue "orders" can\'t be read: AccessDenied']
    world.run_for(10 * MINUTE)
    assert chunks(world, "orders") == 10
    world.faults.inject_aws("sqs", "GetQueueAttributes", denied, times=1000, caller="buffers")
    world.run_for(12 * MINUTE)
    assert chunks(world, "orders") == 0  # for ever would cost as much as the nodes


@pytest.mark.calm_world
def test_without_buffers_that_follow_anything_a_read_is_one_list(world: World) -> None:
    for name in ("orders", "checkout", "campaign"):
        kind = world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
        world.store.delete(kind, name, namespace="default")
    before, since = reads(world), len(world.aws.functions.invocations)
    calls = len(world.aws.calls.all)
    world.run_for(3 * MINUTE)
    invoked = [i for i in world.aws.functions.invocations[since:] if i.function == "buffers"]
    assert len(invoked) >= 6
    assert reads(world) == before
    assert not [c for c in world.aws.calls.all[calls:] if c.caller == "buffers"]


def test_tenon_status_shows_the_function_and_its_queue(world: World) -> None:
    status = deployment.read("demo", None, now=world.clock.now())
    assert [(f.trouble, f.state) for f in status.functions if f.name == "buffers"] == [("", "Active")]
    assert [queue.trouble for queue in status.queues if queue.name == "buffers"] == [""]
