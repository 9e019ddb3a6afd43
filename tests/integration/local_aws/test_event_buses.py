from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import boto3

from local.faults import Fault
from tests.integration.local_aws.rig import START, Json, Rig, arn, function, resource

if TYPE_CHECKING:
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef


def deploy(rig: Rig, **rule: Json) -> None:
    rig.deploy(
        Dead=resource("SQS::Queue", QueueName="dead"),
        Bus=resource("Events::EventBus", Name="own"),
        Function=function(),
        Rule=resource(
            "Events::Rule",
            Name="rule",
            Targets=[{"Id": "f", "Arn": arn("Function"), "DeadLetterConfig": {"Arn": arn("Dead")}}],
            **rule,
        ),
    )


def put(source: str, about: str, *, bus: str = "own") -> None:
    entry: PutEventsRequestEntryTypeDef = {
        "Source": source,
        "DetailType": about,
        "Detail": '{"cluster": "demo"}',
        "EventBusName": bus,
    }
    boto3.client("events").put_events(Entries=[entry])


def test_an_event_reaches_the_function_in_eventbridges_format(rig: Rig) -> None:
    deploy(rig, EventBusName={"Fn::GetAtt": ["Bus", "Name"]}, EventPattern={"source": ["tenon.relay"]})
    put("tenon.relay", "Nodes Changed")
    put("somebody.else", "Nodes Changed")
    rig.settle()
    (event,) = rig.probe.events
    assert event["account"] == "123456789012"
    assert event["detail"] == {"cluster": "demo"}
    assert event["detail-type"] == "Nodes Changed"
    assert event["time"].startswith(START.strftime("%Y-%m-%dT%H:"))


def test_a_disabled_rule_delivers_nothing(rig: Rig) -> None:
    deploy(
        rig, EventBusName={"Fn::GetAtt": ["Bus", "Name"]}, EventPattern={"source": ["tenon.relay"]}, State="DISABLED"
    )
    put("tenon.relay", "Nodes Changed")
    rig.settle()
    assert rig.probe.events == []


def test_a_schedule_runs_by_the_clock_and_matches_no_event(rig: Rig) -> None:
    deploy(rig, ScheduleExpression="rate(1 minute)")
    put("tenon.relay", "Nodes Changed", bus="default")
    rig.settle()
    assert rig.probe.events == []
    rig.run_for(timedelta(minutes=10, seconds=30))
    assert len(rig.probe.events) == 10
    assert {event["detail-type"] for event in rig.probe.events} == {"Scheduled Event"}
    times = [datetime.fromisoformat(event["time"]) for event in rig.probe.events]
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=1)}


def test_a_schedule_can_have_an_input(rig: Rig) -> None:
    rig.deploy(
        Function=function(),
        Rule=resource(
            "Events::Rule",
            ScheduleExpression="cron(0/15 * * * ? *)",
            Targets=[{"Id": "f", "Arn": arn("Function"), "Input": json.dumps({"refresh": "prices"})}],
        ),
    )
    rig.run_for(timedelta(minutes=31))
    assert rig.probe.events == [{"refresh": "prices"}] * 2


def test_a_failing_function_is_tried_again_and_then_dead_lettered(rig: Rig) -> None:
    deploy(rig, EventBusName={"Fn::GetAtt": ["Bus", "Name"]}, EventPattern={"source": ["tenon.relay"]})

    def fail(_event: Json) -> None:
        raise RuntimeError("down")

    rig.probe.answer = fail
    put("tenon.relay", "Nodes Changed")
    rig.run_for(timedelta(minutes=10))
    assert len(rig.probe.events) == 3
    (letter,) = rig.cloud.dead_letters()
    assert json.loads(letter.body)["detail-type"] == "Nodes Changed"
    assert letter.attributes["reason"] == "RuntimeError: down"


def test_a_crash_loses_the_warm_state_and_an_error_does_not(rig: Rig) -> None:
    deploy(rig, ScheduleExpression="rate(1 hour)")

    def work(_event: Json) -> None:
        boto3.client("sqs").list_queues()
        if len(rig.probe.events) == 1:
            raise RuntimeError("an error only")

    rig.probe.answer = work
    assert rig.cloud.functions.invoke("Function", {}).cold
    rig.cloud.faults.inject_aws("sqs", "ListQueues", Fault(crash="after"))
    crashed = rig.cloud.functions.invoke("Function", {})
    assert not crashed.cold
    assert crashed.error == "Crash: after sqs ListQueues"
    assert rig.cloud.functions.invoke("Function", {}).cold


def test_throttled_calls_are_retried_by_the_client_and_counted(rig: Rig) -> None:
    rig.cloud.faults.throttle("sqs", "ListQueues", times=2)
    before = len(rig.cloud.calls.all)
    boto3.client("sqs").list_queues()
    assert [call.error for call in rig.cloud.calls.all[before:]] == ["ThrottlingException", "ThrottlingException", ""]
