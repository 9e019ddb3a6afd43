"""Lifecycle hooks: instances wait for their completion, and events say so; EKS completes its own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from tests.local.aws.worker_groups import GROUP, SOON, Groups, error_of

if TYPE_CHECKING:
    from tests.local.aws.environment import Environment

LAUNCHING, TERMINATING = "autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"


class Hooked:
    """The API of a group's hooks."""

    def __init__(self, groups: Groups) -> None:
        self.api = groups.api

    def put(self, transition: str, *, name: str = "drain", timeout: int = 60, result: str = "ABANDON") -> None:
        self.api.put_lifecycle_hook(
            AutoScalingGroupName=GROUP,
            LifecycleHookName=name,
            LifecycleTransition=transition,
            HeartbeatTimeout=timeout,
            DefaultResult=result,
        )

    def complete(self, result: str = "CONTINUE", *, hook: str = "drain", **by: str) -> None:
        self.api.complete_lifecycle_action(
            AutoScalingGroupName=GROUP, LifecycleHookName=hook, LifecycleActionResult=result, **by
        )

    def heartbeat(self, instance_id: str) -> None:
        self.api.record_lifecycle_action_heartbeat(
            AutoScalingGroupName=GROUP, LifecycleHookName="drain", InstanceId=instance_id
        )


@pytest.fixture
def hooked(groups: Groups) -> Hooked:
    return Hooked(groups)


def test_an_instance_serves_once_its_launch_hook_is_completed(groups: Groups, env: Environment, hooked: Hooked) -> None:
    groups.create(desired=1)
    hooked.put(LAUNCHING)
    env.run_for(SOON)
    assert groups.states() == ["Pending:Wait"]
    (event,) = groups.events("EC2 Instance-launch Lifecycle Action")
    assert (event["source"], event["resources"]) == ("aws.autoscaling", [groups.described()["AutoScalingGroupARN"]])
    detail = event["detail"]
    token = detail.pop("LifecycleActionToken")
    assert detail == {
        "AutoScalingGroupName": GROUP,
        "LifecycleHookName": "drain",
        "EC2InstanceId": groups.ids()[0],
        "LifecycleTransition": LAUNCHING,
        "Origin": "EC2",
        "Destination": "AutoScalingGroup",
    }
    assert groups.events("EC2 Instance Launch Successful") == []
    hooked.complete(LifecycleActionToken=token)
    env.run_for(timedelta(seconds=1))
    assert groups.states() == ["InService"]
    (launched,) = groups.events("EC2 Instance Launch Successful")
    assert launched["detail"]["EC2InstanceId"] == groups.ids()[0]
    assert launched["detail"]["Details"]["Availability Zone"] == groups.described()["Instances"][0]["AvailabilityZone"]
    assert len(launched["resources"]) == 2


@pytest.mark.parametrize("how", ["abandoned", "timed out"])
def test_an_abandoned_launch_is_terminated_and_replaced(
    groups: Groups, env: Environment, hooked: Hooked, how: str
) -> None:
    groups.create(desired=1)
    hooked.put(LAUNCHING, timeout=60)
    env.run_for(SOON)
    (first,) = groups.ids()
    if how == "abandoned":
        hooked.complete("ABANDON", InstanceId=first)
        env.run_for(timedelta(seconds=1))
    else:
        env.run_for(timedelta(seconds=60))
    assert env.cloud.instances.running.keys() & {first} == set()
    env.run_for(timedelta(seconds=20))
    assert groups.states() == ["Pending:Wait"]
    assert groups.ids() != [first]
    assert [e["detail"]["EC2InstanceId"] for e in groups.events("EC2 Instance Launch Unsuccessful")] == [first]


def test_an_instance_is_terminated_once_its_hook_is_completed(groups: Groups, env: Environment, hooked: Hooked) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    hooked.put(TERMINATING)
    (first,) = groups.ids()
    groups.scale(0)
    env.run_for(timedelta(seconds=40))
    assert groups.states() == ["Terminating:Wait"]
    assert first in env.cloud.instances.running
    (event,) = groups.events("EC2 Instance-terminate Lifecycle Action")
    assert (event["detail"]["Origin"], event["detail"]["Destination"]) == ("AutoScalingGroup", "EC2")
    hooked.complete(InstanceId=first)
    env.run_for(timedelta(seconds=1))
    assert groups.states() == ["Terminating:Proceed"]
    env.run_for(timedelta(seconds=20))
    assert groups.states() == []
    (ended,) = groups.events("EC2 Instance Terminate Successful")
    assert ended["detail"]["EC2InstanceId"] == first
    code, message = error_of(
        groups.api.complete_lifecycle_action,
        AutoScalingGroupName=GROUP,
        LifecycleHookName="drain",
        LifecycleActionResult="CONTINUE",
        InstanceId=first,
    )
    assert (code, message) == ("ValidationError", f"No active Lifecycle Action found with instance ID {first}")


def test_heartbeats_restart_the_time_out_up_to_a_hundred_time_outs(
    groups: Groups, env: Environment, hooked: Hooked
) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    hooked.put(TERMINATING, timeout=30)
    (hook,) = groups.api.describe_lifecycle_hooks(AutoScalingGroupName=GROUP)["LifecycleHooks"]
    assert (hook["HeartbeatTimeout"], hook["GlobalTimeout"], hook["DefaultResult"]) == (30, 3000, "ABANDON")
    (first,) = groups.ids()
    groups.scale(0)
    env.run_for(SOON)
    for _ in range(4):
        env.run_for(timedelta(seconds=20))
        hooked.heartbeat(first)
    assert groups.states() == ["Terminating:Wait"]
    env.run_for(timedelta(seconds=31))
    assert groups.states() == ["Terminating:Proceed"]


def test_a_terminating_instance_waits_for_every_hook_and_is_replaced_meanwhile(
    groups: Groups, env: Environment, hooked: Hooked
) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    hooked.put(TERMINATING)
    hooked.put(TERMINATING, name="logs")
    (first,) = groups.ids()
    groups.api.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=False)
    env.run_for(SOON)
    assert groups.states() == ["InService", "Terminating:Wait"]
    hooked.complete(InstanceId=first)
    env.run_for(timedelta(seconds=1))
    assert groups.states() == ["InService", "Terminating:Wait"]
    hooked.complete(InstanceId=first, hook="logs")
    env.run_for(timedelta(seconds=20))
    assert groups.states() == ["InService"]


def test_an_instance_that_ec2_has_terminated_waits_for_its_hook_too(
    groups: Groups, env: Environment, hooked: Hooked
) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    hooked.put(TERMINATING, timeout=300)
    (first,) = groups.ids()
    groups.ec2.terminate_instances(InstanceIds=[first])
    env.run_for(timedelta(minutes=2))
    assert groups.states() == ["InService", "Terminating:Wait"]
    assert [e["detail"]["EC2InstanceId"] for e in groups.events("EC2 Instance-terminate Lifecycle Action")] == [first]


def test_removing_a_hook_ends_its_waits(groups: Groups, env: Environment, hooked: Hooked) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    hooked.put(TERMINATING)
    groups.scale(0)
    env.run_for(SOON)
    groups.api.delete_lifecycle_hook(AutoScalingGroupName=GROUP, LifecycleHookName="drain")
    env.run_for(timedelta(seconds=20))
    assert groups.states() == []
    assert error_of(groups.api.delete_lifecycle_hook, AutoScalingGroupName=GROUP, LifecycleHookName="drain") == (
        "ValidationError",
        "No Lifecycle Hook found",
    )


def test_deleting_a_group_by_force_waits_for_no_hook(groups: Groups, env: Environment, hooked: Hooked) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    hooked.put(TERMINATING)
    groups.scale(0)
    env.run_for(SOON)
    groups.api.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
    env.run_for(timedelta(seconds=20))
    assert groups.running() == 0


def managed(groups: Groups, *, capacity_type: str = "ON_DEMAND") -> str:
    eks: Any = boto3.client("eks")
    created = eks.create_nodegroup(
        clusterName="demo",
        nodegroupName="managed",
        nodeRole="arn:aws:iam::123456789012:role/TenonNodeRole-demo",
        subnets=list(groups.subnets.values()),
        instanceTypes=["m5.large", "m5a.large"],
        capacityType=capacity_type,
        scalingConfig={"minSize": 0, "maxSize": 3, "desiredSize": 1},
    )["nodegroup"]
    return str(created["resources"]["autoScalingGroups"][0]["name"])


def states_of(groups: Groups, name: str) -> list[tuple[str, str]]:
    (group,) = groups.api.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return [(instance["InstanceId"], instance["LifecycleState"]) for instance in group["Instances"]]


def test_eks_completes_its_own_hooks_once_the_node_is_drained(groups: Groups, env: Environment) -> None:
    name, drained = managed(groups), set[str]()
    env.cloud.managed_hooks.drain = lambda instance_id: instance_id in drained
    env.run_for(SOON)
    hooks = groups.api.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
    assert {(h["LifecycleHookName"], h["HeartbeatTimeout"]) for h in hooks} == {
        ("Launch-LC-Hook", 1800),
        ("Terminate-LC-Hook", 1800),
    }
    ((first, state),) = states_of(groups, name)
    assert state == "InService"
    groups.api.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
    env.run_for(timedelta(minutes=5))
    assert states_of(groups, name) == [(first, "Terminating:Wait")]
    drained.add(first)
    env.run_for(timedelta(seconds=30))
    assert states_of(groups, name) == []
    assert len(groups.events("EC2 Instance-terminate Lifecycle Action")) == 1


def test_eks_terminates_a_node_that_isnt_drained_within_15_minutes(groups: Groups, env: Environment) -> None:
    name = managed(groups)
    env.cloud.managed_hooks.drain = lambda _instance_id: False
    env.run_for(SOON)
    ((first, _),) = states_of(groups, name)
    groups.api.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
    env.run_for(timedelta(minutes=14))
    assert states_of(groups, name) == [(first, "Terminating:Wait")]
    env.run_for(timedelta(minutes=2))
    assert states_of(groups, name) == []


def test_eks_drains_a_spot_node_that_is_interrupted(groups: Groups, env: Environment) -> None:
    name, drained = managed(groups, capacity_type="SPOT"), list[str]()

    def drain(instance_id: str) -> bool:
        drained.append(instance_id)
        return True

    env.cloud.managed_hooks.drain = drain
    env.run_for(SOON)
    ((first, _),) = states_of(groups, name)
    env.cloud.instances.interrupt([first])
    env.run_for(SOON)
    assert drained == [first]
    assert states_of(groups, name) == [(first, "InService")]
    env.run_for(timedelta(minutes=4))
    ((second, state),) = states_of(groups, name)
    assert (second != first, state) == (True, "InService")


def test_a_rebalance_recommendation_replaces_a_spot_instance_before_it_is_terminated(
    groups: Groups, env: Environment
) -> None:
    name = managed(groups, capacity_type="SPOT")
    env.run_for(SOON)
    ((first, _),) = states_of(groups, name)
    env.cloud.instances.recommend_rebalance([first])
    env.cloud.instances.recommend_rebalance([first])
    assert [state for _, state in states_of(groups, name)] == ["InService", "Pending"]
    env.run_for(timedelta(seconds=40))
    ((second, state),) = states_of(groups, name)
    assert (second != first, state) == (True, "InService")


def test_a_recommendation_is_left_to_others_without_capacity_rebalancing(groups: Groups, env: Environment) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    first = groups.ids()
    env.cloud.instances.recommend_rebalance(first)
    env.run_for(timedelta(minutes=5))
    assert groups.ids() == first
