from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import boto3

from local.faults import Fault
from tests.local.aws.environment import START, Environment, Json, arn, function, resource

if TYPE_CHECKING:
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef


def deploy(env: Environment, **rule: Json) -> None:
    env.deploy(
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


def test_an_event_reaches_the_function_in_eventbridges_format(env: Environment) -> None:
    deploy(env, EventBusName={"Fn::GetAtt": ["Bus", "Name"]}, EventPattern={"source": ["tenon.relay"]})
    put("tenon.relay", "Nodes Changed")
    put("somebody.else", "Nodes Changed")
    env.settle()
    (event,) = env.probe.events
    assert event["account"] == "123456789012"
    assert event["detail"] == {"cluster": "demo"}
    assert event["detail-type"] == "Nodes Changed"
    assert event["time"].startswith(START.strftime("%Y-%m-%dT%H:"))


def test_a_disabled_rule_delivers_nothing(env: Environment) -> None:
    deploy(
        env, EventBusName={"Fn::GetAtt": ["Bus", "Name"]}, EventPattern={"source": ["tenon.relay"]}, State="DISABLED"
    )
    put("tenon.relay", "Nodes Changed")
    env.settle()
    assert env.probe.events == []


def test_a_schedule_runs_by_the_clock_and_matches_no_event(env: Environment) -> None:
    deploy(env, ScheduleExpression="rate(1 minute)")
    put("tenon.relay", "Nodes Changed", bus="default")
    env.settle()
    assert env.probe.events == []
    env.run_for(timedelta(minutes=10, seconds=30))
    assert len(env.probe.events) == 10
    assert {event["detail-type"] for event in env.probe.events} == {"Scheduled Event"}
    times = [datetime.fromisoformat(event["time"]) for event in env.probe.events]
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=1)}


def test_a_schedule_can_have_an_input(env: Environment) -> None:
    env.deploy(
        Function=function(),
        Rule=resource(
            "Events::Rule",
            ScheduleExpression="cron(0/15 * * * ? *)",
            Targets=[{"Id": "f", "Arn": arn("Function"), "Input": json.dumps({"refresh": "prices"})}],
        ),
    )
    env.run_for(timedelta(minutes=31))
    assert env.probe.events == [{"refresh": "prices"}] * 2


def test_a_failing_function_is_tried_again_and_then_dead_lettered(env: Environment) -> None:
    deploy(env, EventBusName={"Fn::GetAtt": ["Bus", "Name"]}, EventPattern={"source": ["tenon.relay"]})

    def fail(_event: Json) -> None:
        raise RuntimeError("down")

    env.probe.answer = fail
    put("tenon.relay", "Nodes Changed")
    env.run_for(timedelta(minutes=10))
    assert len(env.probe.events) == 3
    (letter,) = env.cloud.dead_letters()
    assert json.loads(letter.body)["detail-type"] == "Nodes Changed"
    assert letter.attributes["reason"] == "RuntimeError: down"


def test_a_crash_loses_the_warm_state_and_an_error_does_not(env: Environment) -> None:
    deploy(env, ScheduleExpression="rate(1 hour)")

    def work(_event: Json) -> None:
        boto3.client("sqs").list_queues()
        if len(env.probe.events) == 1:
            raise RuntimeError("an error only")

    env.probe.answer = work
    assert env.cloud.functions.invoke("Function", {}).cold
    env.cloud.faults.inject_aws("sqs", "ListQueues", Fault(crash="after"))
    crashed = env.cloud.functions.invoke("Function", {})
    assert not crashed.cold
    assert crashed.error == "Crash: after sqs ListQueues"
    assert env.cloud.functions.invoke("Function", {}).cold


def test_throttled_calls_are_retried_by_the_client_and_counted(env: Environment) -> None:
    env.cloud.faults.throttle("sqs", "ListQueues", times=2)
    before = len(env.cloud.calls.all)
    boto3.client("sqs").list_queues()
    assert [call.error for call in env.cloud.calls.all[before:]] == ["ThrottlingException", "ThrottlingException", ""]
