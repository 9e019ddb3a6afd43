"""DescribeInstanceStatus, as the local cloud answers it: failing checks and scheduled events on command."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.local.aws.test_capacity_reservations import account, ids, launch

if TYPE_CHECKING:
    from local.aws.account import Account
    from tests.local.aws.environment import Environment

__all__ = ["account"]


def described(**request: Any) -> list[Any]:
    pages = boto3.client("ec2").get_paginator("describe_instance_status").paginate(**request)
    return [status for page in pages for status in page["InstanceStatuses"]]


def impaired(name: str) -> list[Any]:
    return [{"Name": f"{name}.status", "Values": ["impaired"]}]


@pytest.fixture
def instances(env: Environment, account: Account) -> list[str]:
    launched = ids(launch(account, "m5.large", "us-east-1a", count=7))
    env.clock.sleep(60)
    env.cloud.instances.step(env.clock.now())
    return launched


def test_a_check_fails_on_command_since_then(env: Environment, instances: list[str]) -> None:
    assert {s["SystemStatus"]["Status"] for s in described()} == {"ok"}
    since = env.clock.now()
    env.cloud.statuses.fail(instances[0], "instance")
    (status,) = described(Filters=impaired("instance-status"))
    assert status["InstanceId"] == instances[0]
    (check,) = status["InstanceStatus"]["Details"]
    assert (check["Name"], check["Status"]) == ("reachability", "failed")
    assert abs(check["ImpairedSince"] - since) < timedelta(seconds=1)
    assert described(Filters=impaired("system-status")) == []
    env.cloud.statuses.recover(instances[0])
    assert described(Filters=impaired("instance-status")) == []


def test_filters_of_different_names_must_all_match(env: Environment, instances: list[str]) -> None:
    env.cloud.statuses.fail(instances[0], "instance")
    env.cloud.statuses.schedule(instances[1], "system-reboot", env.clock.now() + timedelta(days=2))
    events = [{"Name": "event.code", "Values": ["system-reboot", "instance-stop"]}]
    (status,) = described(Filters=events)
    assert status["Events"][0]["Code"] == "system-reboot"
    assert described(Filters=[*events, *impaired("instance-status")]) == []


def test_answers_come_in_pages_of_which_the_first_may_be_empty(env: Environment, instances: list[str]) -> None:
    for instance in instances:
        env.cloud.statuses.fail(instance)
    env.cloud.statuses.first_page_is_empty = True
    first = boto3.client("ec2").describe_instance_status(Filters=impaired("system-status"), MaxResults=5)
    assert first["InstanceStatuses"] == []
    statuses = described(Filters=impaired("system-status"), PaginationConfig={"PageSize": 5})
    assert sorted(s["InstanceId"] for s in statuses) == sorted(instances)


@pytest.mark.parametrize(
    "request_", [{"Filters": [{"Name": "tag:a", "Values": ["b"]}]}, {"MaxResults": 3}, {"MaxResults": 1001}]
)
@pytest.mark.usefixtures("instances")
def test_what_ec2_refuses(request_: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        boto3.client("ec2").describe_instance_status(**request_)
