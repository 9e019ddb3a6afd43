"""Auto Scaling's answers: sizes, zones, lifecycle states, activities, and errors."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws import iam_actions, iam_policies
from local.aws.iam_enforcement import credentials
from tests.local.aws.worker_groups import GROUP, KIND, QUICK, SOON, error_of

if TYPE_CHECKING:
    from tests.local.aws.environment import Environment
    from tests.local.aws.worker_groups import Groups


def test_instances_come_seconds_later_one_to_a_zone(groups: Groups, env: Environment) -> None:
    groups.create(desired=3)
    assert groups.states() == []
    env.run_for(QUICK)
    assert groups.running() == 0
    env.run_for(timedelta(seconds=3.5))
    assert groups.states() == ["Pending"] * 3
    env.run_for(SOON)
    group = groups.described()
    assert groups.states() == ["InService"] * 3
    assert len({instance["AvailabilityZone"] for instance in group["Instances"]}) == 3
    assert {instance["HealthStatus"] for instance in group["Instances"]} == {"Healthy"}
    assert {instance["LaunchTemplate"]["Version"] for instance in group["Instances"]} == {"1"}
    assert [activity["StatusCode"] for activity in groups.activities()] == ["Successful"] * 3


def test_instances_have_the_tags_that_are_propagated(groups: Groups, env: Environment) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    ((instance,),) = (r["Instances"] for r in groups.ec2.describe_instances()["Reservations"])
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert (tags["aws:autoscaling:groupName"], tags["team"]) == (GROUP, "a")
    assert "hidden" not in tags


def test_a_scale_in_takes_from_the_fullest_zone(groups: Groups, env: Environment) -> None:
    groups.create(desired=4)
    env.run_for(SOON)
    counts = Counter(i["AvailabilityZone"] for i in groups.described()["Instances"])
    ((fullest, _),) = counts.most_common(1)
    groups.scale(3)
    env.run_for(timedelta(seconds=6))
    (leaving,) = (i for i in groups.described()["Instances"] if i["LifecycleState"] == "Terminating")
    assert leaving["AvailabilityZone"] == fullest
    env.run_for(timedelta(seconds=20))
    assert groups.states() == ["InService"] * 3
    assert groups.activities()[0]["Description"] == f"Terminating EC2 instance: {leaving['InstanceId']}"


def test_sizes_outside_the_bounds_are_refused(groups: Groups) -> None:
    groups.create(minimum=1, desired=1)
    above = error_of(groups.api.set_desired_capacity, AutoScalingGroupName=GROUP, DesiredCapacity=5)
    assert above == ("ValidationError", "New SetDesiredCapacity value 5 is above max value 4 for the AutoScalingGroup.")
    below = error_of(groups.api.set_desired_capacity, AutoScalingGroupName=GROUP, DesiredCapacity=0)
    assert "is below min value 1" in below[1]
    assert error_of(groups.api.set_desired_capacity, AutoScalingGroupName="no", DesiredCapacity=0)[0] == (
        "ValidationError"
    )
    assert groups.described()["DesiredCapacity"] == 1


def test_an_update_outside_its_own_bounds_changes_nothing(groups: Groups) -> None:
    groups.create(desired=1)
    update = groups.api.update_auto_scaling_group
    code, message = error_of(update, AutoScalingGroupName=GROUP, MaxSize=2, DesiredCapacity=3)
    assert code == "ValidationError"
    assert message == "Desired capacity:3 must be between the specified min size:0 and max size:2"
    group = groups.described()
    assert (group["MinSize"], group["DesiredCapacity"], group["MaxSize"]) == (0, 1, 4)


def test_a_terminated_instance_shrinks_the_group_or_is_replaced(groups: Groups, env: Environment) -> None:
    groups.create(minimum=1, desired=2)
    env.run_for(SOON)
    terminate = groups.api.terminate_instance_in_auto_scaling_group
    first, second = groups.ids()
    answer = terminate(InstanceId=first, ShouldDecrementDesiredCapacity=True)
    assert answer["Activity"]["StatusCode"] == "InProgress"
    assert "shrinking the capacity from 2 to 1" in answer["Activity"]["Cause"]
    assert groups.described()["DesiredCapacity"] == 1
    assert error_of(terminate, InstanceId=first, ShouldDecrementDesiredCapacity=True)[0] == "ScalingActivityInProgress"
    code, message = error_of(terminate, InstanceId=second, ShouldDecrementDesiredCapacity=True)
    assert (code, message[:44]) == ("ValidationError", "Currently, desiredSize equals minSize (1). T")
    terminate(InstanceId=second, ShouldDecrementDesiredCapacity=False)
    env.run_for(timedelta(seconds=30))
    (third,) = groups.ids()
    assert third not in (first, second)
    assert (groups.states(), groups.described()["DesiredCapacity"]) == (["InService"], 1)
    unknown = error_of(terminate, InstanceId=first, ShouldDecrementDesiredCapacity=True)
    assert unknown[1] == f"Instance Id not found - No managed instance found for instance ID: {first}"


def test_without_capacity_the_desired_capacity_stays_and_launches_back_off(groups: Groups, env: Environment) -> None:
    env.cloud.capacity.set("on-demand", KIND, "*", 0)
    groups.create(desired=2)
    env.run_for(SOON)
    assert (groups.states(), groups.described()["DesiredCapacity"]) == ([], 2)
    failed = groups.activities()
    assert {activity["StatusCode"] for activity in failed} == {"Failed"}
    assert len(failed) == 3  # one attempt in each zone
    assert "do not have sufficient m5.large capacity" in failed[0]["StatusMessage"]
    env.run_for(timedelta(minutes=10))
    assert len(groups.activities()) == 15  # again after 30, 60, 120 and 240 s
    env.cloud.capacity.set("on-demand", KIND, "*", None)
    env.run_for(timedelta(minutes=15))
    assert groups.states() == ["InService"] * 2


def test_a_zone_without_capacity_is_passed_over(groups: Groups, env: Environment) -> None:
    env.cloud.capacity.set("on-demand", KIND, "us-east-1a", 0)
    groups.create(desired=2)
    env.run_for(SOON)
    assert {i["AvailabilityZone"] for i in groups.described()["Instances"]} == {"us-east-1b", "us-east-1c"}


def test_an_instance_that_ec2_terminates_is_replaced_after_its_health_check(groups: Groups, env: Environment) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    (first,) = groups.ids()
    groups.ec2.terminate_instances(InstanceIds=[first])
    env.run_for(timedelta(seconds=30))
    assert groups.ids() == [first]
    env.run_for(timedelta(minutes=1))
    (second,) = groups.ids()
    assert second != first
    assert groups.states() == ["InService"]
    causes = [activity["Cause"] for activity in groups.activities()]
    assert any("EC2 health check" in cause for cause in causes)


def test_an_instance_that_fails_at_boot_is_replaced(groups: Groups, env: Environment) -> None:
    env.cloud.instances.fail_starts(KIND, "*", 1)
    groups.create(desired=1)
    env.run_for(timedelta(minutes=2))
    assert groups.states() == ["InService"]
    (failed,) = (a for a in groups.activities() if a["StatusCode"] == "Failed")
    assert "Client.InternalError" in failed["StatusMessage"]


def test_answers_are_as_late_as_those_of_ec2(groups: Groups, env: Environment) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    env.cloud.consistency.lag = timedelta(seconds=5)
    groups.scale(3)
    assert groups.described()["DesiredCapacity"] == 1
    env.run_for(timedelta(seconds=6))
    assert (groups.described()["DesiredCapacity"], groups.states()) == (3, ["InService"])
    env.run_for(SOON)
    assert groups.states() == ["InService"] * 3


def test_a_rebalancing_launches_in_another_zone_first(groups: Groups, env: Environment) -> None:
    env.cloud.auto_scaling.rebalance_after = timedelta(minutes=5)
    groups.create(desired=1, maximum=1)
    env.run_for(timedelta(minutes=4))
    (first,) = groups.described()["Instances"]
    counts = []
    for _ in range(30):
        env.run_for(timedelta(seconds=5))
        counts.append(groups.states().count("InService"))
    (second,) = groups.described()["Instances"]
    assert second["AvailabilityZone"] != first["AvailabilityZone"]
    assert min(counts) == 1
    assert groups.described()["DesiredCapacity"] == 1


def test_protected_instances_stay(groups: Groups, env: Environment) -> None:
    groups.create(desired=2)
    env.run_for(SOON)
    kept, _ = groups.ids()
    groups.api.set_instance_protection(AutoScalingGroupName=GROUP, InstanceIds=[kept], ProtectedFromScaleIn=True)
    groups.scale(0)
    env.run_for(timedelta(minutes=2))
    assert groups.ids() == [kept]


def test_a_group_with_instances_is_deleted_only_by_force(groups: Groups, env: Environment) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    assert error_of(groups.api.delete_auto_scaling_group, AutoScalingGroupName=GROUP)[0] == "ResourceInUse"
    groups.api.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
    env.run_for(timedelta(minutes=1))
    assert groups.running() == 0
    assert groups.api.describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_a_spot_group_of_eks_replaces_an_interrupted_instance(groups: Groups, env: Environment) -> None:
    eks: Any = boto3.client("eks")
    node_group = eks.create_nodegroup(
        clusterName="demo",
        nodegroupName="spot",
        nodeRole="arn:aws:iam::123456789012:role/TenonNodeRole-demo",
        subnets=list(groups.subnets.values()),
        instanceTypes=["m5.large", "m5a.large"],
        capacityType="SPOT",
        scalingConfig={"minSize": 0, "maxSize": 3, "desiredSize": 1},
    )["nodegroup"]
    name = node_group["resources"]["autoScalingGroups"][0]["name"]
    env.run_for(SOON)
    (group,) = groups.api.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
    assert tags == {
        "eks:cluster-name": "demo",
        "eks:nodegroup-name": "spot",
        "k8s.io/cluster-autoscaler/enabled": "true",
        "k8s.io/cluster-autoscaler/demo": "owned",
        "kubernetes.io/cluster/demo": "owned",
    }
    (first,) = (i["InstanceId"] for i in group["Instances"])
    assert env.cloud.instances.running[first].lifecycle == "spot"
    env.cloud.instances.interrupt([first])
    env.run_for(timedelta(minutes=5))
    (second,) = env.cloud.instances.running
    assert second != first
    eks.update_nodegroup_config(
        clusterName="demo", nodegroupName="spot", scalingConfig={"minSize": 0, "maxSize": 3, "desiredSize": 2}
    )
    env.run_for(SOON)
    assert groups.running() == 2
    groups.api.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=5, DesiredCapacity=3)
    env.run_for(SOON)
    assert {instance.lifecycle for instance in env.cloud.instances.running.values()} == {"spot"}
    assert groups.running() == 3
    eks.delete_nodegroup(clusterName="demo", nodegroupName="spot")
    env.run_for(timedelta(minutes=1))
    assert groups.running() == 0


@pytest.mark.parametrize("key", ["aws:ResourceTag/team", "autoscaling:ResourceTag/team"])
@pytest.mark.parametrize(
    "operation",
    [
        "SetDesiredCapacity",
        "TerminateInstanceInAutoScalingGroup",
        "CompleteLifecycleAction",
        "RecordLifecycleActionHeartbeat",
        "PutLifecycleHook",
        "PutWarmPool",
    ],
)
def test_scaling_is_allowed_by_the_tags_of_the_group(
    groups: Groups, env: Environment, operation: str, key: str
) -> None:
    groups.create(desired=1)
    env.run_for(SOON)
    (instance_id,) = groups.ids()
    params = {"AutoScalingGroupName": GROUP, "DesiredCapacity": 2, "InstanceId": instance_id}

    def allowed(team: str, params: dict[str, Any]) -> bool:
        statement = {
            "Effect": "Allow",
            "Action": f"autoscaling:{operation}",
            "Resource": f"arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:*:autoScalingGroupName/{GROUP}",
            "Condition": {"StringEquals": {key: team}},
        }
        statements = iam_policies.parse({"Version": "2012-10-17", "Statement": [statement]})
        requests = iam_actions.requests("autoscaling", operation, params, env.cloud.enforcement.context)
        return all(iam_policies.allows(request, identity=statements) for request in requests)

    assert allowed("a", params)
    assert not allowed("b", params)
    assert not allowed("a", {**params, "AutoScalingGroupName": "no", "InstanceId": "i-0"})


def test_reading_node_groups_needs_rights_on_the_cluster_and_the_node_group(env: Environment) -> None:
    context = env.cloud.enforcement.context
    reads = {
        ("autoscaling", "DescribeAutoScalingGroups"): "*",
        ("autoscaling", "DescribeScalingActivities"): "*",
        ("autoscaling", "DescribeLifecycleHooks"): "*",
        ("autoscaling", "DescribeWarmPool"): "*",
        ("ec2", "DescribeLaunchTemplateVersions"): "*",
        ("eks", "ListNodegroups"): "arn:aws:eks:us-east-1:123456789012:cluster/demo",
        ("eks", "DescribeNodegroup"): "arn:aws:eks:us-east-1:123456789012:nodegroup/demo/system/*",
    }
    params = {"clusterName": "demo", "nodegroupName": "system"}
    for (service, operation), resource in reads.items():
        (request,) = iam_actions.requests(service, operation, params, context)
        assert (request.action, request.resource) == (f"{service}:{operation}", resource)


def test_a_role_without_rights_scales_nothing(env: Environment, groups: Groups) -> None:
    groups.create()
    env.cloud.enforcement.enforce({"probe": env.cloud.deployed.physical_ids["Role"]})
    key = credentials("probe")
    api: Any = boto3.client("autoscaling", aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key)
    denied = error_of(api.set_desired_capacity, AutoScalingGroupName=GROUP, DesiredCapacity=1)
    assert denied[0] == "AccessDenied"
    assert groups.described()["DesiredCapacity"] == 0
