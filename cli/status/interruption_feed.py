"""Whether the interruption queue is really fed: by its rules, its policy, and the last event that they matched.

A queue that nothing arrives in looks healthy, and so does one whose rules were deleted: without warnings, pods on spot
instances end with the instance.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from infra.cluster import resource_names
from shared.base import aws
from shared.base.aws import error_code
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

RULES = ("SpotInterruption", "Rebalance", "StateChange", "ReservationInterruption", "Health")
"""The rules of infra/cluster/event_rules.py that deliver AWS's events about instances, by their construct ids."""
_HISTORY = timedelta(days=14)
_PERIOD = 3600


class InterruptionFeed(WireStruct, kw_only=True):
    """The problems of the feed, and the hour of the last event that a rule matched; None if there was none."""

    problems: tuple[str, ...] = ()
    last_event: datetime | None = None


def read(cluster: str, *, now: datetime) -> InterruptionFeed:
    """The feed of a cluster's interruption queue.

    Raises:
        ClientError: it can't be read.
    """
    url = aws.sqs().get_queue_url(QueueName=resource_names.queue(cluster, "interruption", fifo=False))["QueueUrl"]
    attributes = aws.sqs().get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn", "Policy"])["Attributes"]
    queue_arn, policy = attributes["QueueArn"], json.loads(attributes.get("Policy", '{"Statement": []}'))
    problems: list[str] = []
    for id_ in RULES:
        problems += _rule_problems(resource_names.rule(cluster, id_), queue_arn, policy)
    return InterruptionFeed(problems=tuple(problems), last_event=_last_event(cluster, now))


def _rule_problems(name: str, queue_arn: str, policy: Mapping[str, Any]) -> Iterable[str]:
    try:
        rule = aws.events().describe_rule(Name=name)
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        return [f"rule {name} doesn't exist"]
    if rule["State"] == "DISABLED":
        return [f"rule {name} is disabled"]
    targets = aws.events().list_targets_by_rule(Rule=name)["Targets"]
    if queue_arn not in {target["Arn"] for target in targets}:
        return [f"rule {name} doesn't target the queue"]
    if not any(allows(statement, rule["Arn"]) for statement in policy["Statement"]):
        return [f"the queue's policy doesn't allow rule {name}"]
    return []


def allows(statement: Mapping[str, Any], rule_arn: str) -> bool:
    """Whether a statement of the queue's policy lets EventBridge send for the rule."""
    if statement["Effect"] != "Allow" or statement.get("Principal") != {"Service": "events.amazonaws.com"}:
        return False
    condition = statement.get("Condition", {})
    sources = {**condition.get("ArnLike", {}), **condition.get("ArnEquals", {})}.get("aws:SourceArn", rule_arn)
    return any(fnmatchcase(rule_arn, pattern) for pattern in ([sources] if isinstance(sources, str) else sources))


def _last_event(cluster: str, now: datetime) -> datetime | None:
    """The hour of the last event, by EventBridge's own metric of the rules."""
    create: Callable[..., Any] = boto3.client
    queries = [
        {
            "Id": f"rule{index}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/Events",
                    "MetricName": "TriggeredRules",
                    "Dimensions": [{"Name": "RuleName", "Value": resource_names.rule(cluster, id_)}],
                },
                "Period": _PERIOD,
                "Stat": "Sum",
            },
        }
        for index, id_ in enumerate(RULES)
    ]
    response = create("cloudwatch").get_metric_data(MetricDataQueries=queries, StartTime=now - _HISTORY, EndTime=now)
    hours = [
        hour
        for result in response["MetricDataResults"]
        for hour, value in zip(result["Timestamps"], result["Values"], strict=True)
        if value
    ]
    return max(hours, default=None)
