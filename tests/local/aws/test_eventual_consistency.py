"""The local EC2's answers can lag, be partial or empty, as AWS's can."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError

from shared.base import aws
from shared.launch import instances
from tests.local.aws.test_fleet import account, create, ids, request

if TYPE_CHECKING:
    from local.aws.account import Account
    from tests.local.aws.environment import Environment

__all__ = ["account"]


def described(**params: object) -> dict[str, str]:
    pages = boto3.client("ec2").describe_instances(**params)["Reservations"]  # type: ignore[arg-type]  # tests' own
    return {i["InstanceId"]: i["State"]["Name"] for r in pages for i in r["Instances"]}


def test_a_new_instance_and_a_new_state_are_shown_after_the_lag(env: Environment, account: Account) -> None:
    env.cloud.consistency.lag = timedelta(seconds=60)
    (instance,) = ids(create(request(account, "m5.large")))
    assert described() == {}
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        described(InstanceIds=[instance])
    env.clock.sleep(61)
    assert described(InstanceIds=[instance]) == {instance: "pending"}
    boto3.client("ec2").terminate_instances(InstanceIds=[instance])
    assert described() == {instance: "pending"}
    env.clock.sleep(61)
    by_state = [{"Name": "instance-state-name", "Values": ["shutting-down"]}]
    assert described(Filters=by_state) == {instance: "shutting-down"}


def test_answers_can_be_empty_or_leave_out_some_instances(env: Environment, account: Account) -> None:
    launched = set(ids(create(request(account, "m5.large", count=40))))
    assert set(described()) == launched
    env.cloud.consistency.left_out = 0.5
    first, second = set(described()), set(described())
    assert first < launched
    assert second < launched
    assert first != second
    env.cloud.consistency.left_out = 1.0
    assert described() == {}


def test_answers_about_subnets_by_filters_can_leave_some_out(env: Environment) -> None:
    ec2 = boto3.client("ec2")

    def subnets() -> set[str]:
        return {s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}

    every = subnets()
    env.cloud.consistency.resources_left_out = 0.5
    assert subnets() < every
    assert subnets() != subnets()
    assert len(ec2.describe_subnets(SubnetIds=sorted(every))["Subnets"]) == len(every)
    env.cloud.consistency.resources_left_out = 1.0
    assert ec2.describe_subnets()["Subnets"] == []
    assert ec2.describe_images(Owners=["amazon"])["Images"] == []
    assert ec2.describe_security_groups()["SecurityGroups"] == []


def test_tags_can_be_created_once_ec2_knows_the_instance(env: Environment, account: Account) -> None:
    env.cloud.consistency.tag_lag = timedelta(seconds=5)
    (instance,) = ids(create(request(account, "m5.large")))
    tags = [{"Key": "who", "Value": "me"}]
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        boto3.client("ec2").create_tags(Resources=[instance], Tags=tags)  # type: ignore[arg-type]  # plain dicts
    env.clock.sleep(6)
    boto3.client("ec2").create_tags(Resources=[instance], Tags=tags)  # type: ignore[arg-type]  # plain dicts


def test_instances_come_in_pages_of_which_the_first_is_empty(env: Environment, account: Account) -> None:
    launched = [ids(create(request(account, "m5.large", name=f"call-{number}"))) for number in range(7)]
    env.cloud.consistency.page_size = 3
    pages = list(boto3.client("ec2").get_paginator("describe_instances").paginate())
    assert [len(page["Reservations"]) for page in pages] == [0, 3, 3, 1]
    known = instances.get(aws.ec2(), [instance for (instance,) in launched])
    assert sorted(i.id for i in known) == sorted(instance for (instance,) in launched)


def test_most_answers_can_be_complete(env: Environment, account: Account) -> None:
    launched = set(ids(create(request(account, "m5.large", count=20))))
    env.cloud.consistency.left_out, env.cloud.consistency.incomplete = 0.5, 0.2
    complete = [set(described()) == launched for _ in range(50)]
    assert 30 <= sum(complete) <= 48


def test_an_instance_is_terminated_once_it_is_described(env: Environment, account: Account) -> None:
    env.cloud.consistency.lag = timedelta(seconds=5)
    (instance,) = ids(create(request(account, "m5.large")))
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        boto3.client("ec2").terminate_instances(InstanceIds=[instance])
    assert instances.terminate(aws.ec2(), [instance]).known == ()
    env.clock.sleep(6)
    assert instances.terminate(aws.ec2(), [instance]).known == (instance,)
