"""The event bus and its rules."""

import json
from collections.abc import Callable
from typing import Any

from cli.verify import rules
from infra import function_sizes
from infra.cluster import resource_names
from shared.base import hints

Select = Callable[[str], dict[str, dict[str, Any]]]
Functions = dict[str, tuple[str, dict[str, Any]]]


def to(of_type: Select, functions: Functions, rule: dict[str, Any]) -> set[tuple[str, str]]:
    """Where a rule leads: ("queue" | "function", the name of the function that gets it in the end)."""
    name_of = {id_: name for name, (id_, _) in functions.items()}
    queue_of = {
        mapping["EventSourceArn"]["Fn::GetAtt"][0]: name_of[mapping["FunctionName"]["Ref"]]
        for mapping in of_type("AWS::Lambda::EventSourceMapping").values()
    }
    ids = [target["Arn"]["Fn::GetAtt"][0] for target in rule["Targets"]]
    return {("queue", queue_of[id_]) if id_ in queue_of else ("function", name_of[id_]) for id_ in ids}


def test_each_hint_of_the_relay_is_delivered_to_its_function(of_type: Select, functions: Functions) -> None:
    led: dict[str, set[tuple[str, str]]] = {}
    for rule in of_type("AWS::Events::Rule").values():
        if hints.RELAY in rule.get("EventPattern", {}).get("source", []):
            for about in rule["EventPattern"]["detail-type"]:
                led.setdefault(about, set()).update(to(of_type, functions, rule))
    assert led == {
        hints.PODS_UNSCHEDULABLE: {("queue", function_sizes.PROVISIONER)},
        hints.CAPACITY_BUFFERS_CHANGED: {
            ("queue", function_sizes.PROVISIONER),
            ("function", function_sizes.LIFECYCLE),
        },
        hints.NODE_POOLS_CHANGED: {
            ("queue", function_sizes.PROVISIONER),
            ("queue", function_sizes.DISRUPTION),
            ("function", function_sizes.LIFECYCLE),
        },
        hints.NODES_CHANGED: {("function", function_sizes.LIFECYCLE)},
        hints.NODES_EMPTIED: {("queue", function_sizes.DISRUPTION)},
        hints.NODES_UNDERUTILIZED: {("queue", function_sizes.DISRUPTION)},
        hints.NODES_DELETED: {("queue", function_sizes.DISRUPTION)},
        hints.NODES_DELETING: {("queue", function_sizes.TERMINATION)},
        hints.NODE_CLAIMS_DELETING: {("queue", function_sizes.TERMINATION)},
        hints.DRAINS_UNBLOCKED: {("queue", function_sizes.TERMINATION)},
    }


def test_hints_of_another_cluster_are_not_delivered(of_type: Select) -> None:
    for rule in of_type("AWS::Events::Rule").values():
        if "EventBusName" in rule:
            assert rule["EventPattern"]["detail"] == {"cluster": ["demo"]}


def test_only_functions_request_a_missing_catalog(of_type: Select, functions: Functions) -> None:
    (rule,) = (
        r
        for r in of_type("AWS::Events::Rule").values()
        if hints.CATALOG_MISSING in r.get("EventPattern", {}).get("detail-type", [])
    )
    assert rule["EventPattern"]["source"] == [hints.FUNCTIONS]
    assert to(of_type, functions, rule) == {("function", function_sizes.CATALOG)}


def test_sweeps_run_each_minute(of_type: Select, functions: Functions) -> None:
    swept = {
        target
        for rule in of_type("AWS::Events::Rule").values()
        if rule.get("ScheduleExpression") == "rate(1 minute)"
        for target in to(of_type, functions, rule)
    }
    assert swept == {
        ("queue", function_sizes.PROVISIONER),
        ("function", function_sizes.INTERRUPTION),
        ("function", function_sizes.LIFECYCLE),
        ("function", function_sizes.DISRUPTION),
        ("function", function_sizes.RELAY),
    }


def test_types_are_refreshed_twice_a_day_and_prices_every_15_minutes(of_type: Select, functions: Functions) -> None:
    refreshes = {
        rule["ScheduleExpression"]: json.loads(rule["Targets"][0]["Input"])
        for rule in of_type("AWS::Events::Rule").values()
        if to(of_type, functions, rule) == {("function", function_sizes.CATALOG)} and "ScheduleExpression" in rule
    }
    assert refreshes == {"rate(12 hours)": {"refresh": "types"}, "rate(15 minutes)": {"refresh": "prices"}}


def test_schedules_are_on_the_default_bus(of_type: Select) -> None:
    for rule in of_type("AWS::Events::Rule").values():
        assert not ("ScheduleExpression" in rule and "EventBusName" in rule)


def test_aws_events_about_instances_are_delivered_to_the_interruption_function(
    of_type: Select, functions: Functions
) -> None:
    heard = {}
    for rule in of_type("AWS::Events::Rule").values():
        pattern = rule.get("EventPattern", {})
        if pattern.get("source", [""])[0].startswith("aws."):
            assert to(of_type, functions, rule) == {("queue", function_sizes.INTERRUPTION)}
            assert "EventBusName" not in rule
            heard[pattern["source"][0], pattern["detail-type"][0]] = pattern.get("detail")
    assert heard == {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning"): None,
        ("aws.ec2", "EC2 Instance Rebalance Recommendation"): None,
        ("aws.ec2", "EC2 Instance State-change Notification"): {
            "state": ["stopping", "stopped", "shutting-down", "terminated"]
        },
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): None,
        ("aws.health", "AWS Health Event"): {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    }


def test_every_target_has_a_retry_policy_and_a_dead_letter_queue(of_type: Select) -> None:
    queues = of_type("AWS::SQS::Queue")
    for rule in of_type("AWS::Events::Rule").values():
        for target in rule["Targets"]:
            assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] >= 60
            assert target["RetryPolicy"]["MaximumRetryAttempts"] >= 1
            dead = queues[target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0]]
            assert "FifoQueue" not in dead  # EventBridge can't use one


def test_hints_and_sweeps_have_separate_message_groups(of_type: Select, functions: Functions) -> None:
    for rule in of_type("AWS::Events::Rule").values():
        group = {"MessageGroupId": "demo-sweep" if "ScheduleExpression" in rule else "demo"}
        for target in rule["Targets"]:
            provisioning = ("queue", function_sizes.PROVISIONER) in to(of_type, functions, {"Targets": [target]})
            assert target.get("SqsParameters") == (group if provisioning else None)


def test_verify_knows_every_rule_its_bus_and_its_functions(of_type: Select, functions: Functions) -> None:
    named = {
        rule["Name"]: ("EventBusName" in rule, {name for _, name in to(of_type, functions, rule)})
        for rule in of_type("AWS::Events::Rule").values()
    }
    expected = {
        resource_names.rule("demo", id_): (on_own_bus, set(invoked))
        for ids, on_own_bus in ((rules.SCHEDULES, False), (rules.ANNOUNCEMENTS, False), (rules.HINTS, True))
        for id_, invoked in ids.items()
    }
    assert named == expected
    assert rules.SAMPLES.keys() == rules.ANNOUNCEMENTS.keys()
