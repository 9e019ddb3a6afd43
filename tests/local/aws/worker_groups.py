"""An Auto Scaling group of a test, and its API."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.local.aws.environment import arn, function, resource

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.local.aws.environment import Environment

IMAGE = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"
QUICK, SOON = timedelta(seconds=2), timedelta(seconds=10)
GROUP = "workers"
KIND = "m5.large"


class Groups:
    """A group of m5.large in three zones, of one to four instances, its API, and the events about it."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.api: Any = boto3.client("autoscaling")
        self.ec2: Any = boto3.client("ec2")
        account = env.cloud.prepare(
            cluster="demo", version="1.34", endpoint="https://127.0.0.1:1", certificate_authority="Y2E="
        )
        self.subnets = account.subnets
        image = boto3.client("ssm").get_parameter(Name=IMAGE)["Parameter"]["Value"]
        self.ec2.create_launch_template(
            LaunchTemplateName="workers", LaunchTemplateData={"ImageId": image, "InstanceType": "m5.large"}
        )
        rule = resource(
            "Events::Rule",
            EventPattern={"source": ["aws.autoscaling"]},
            Targets=[{"Id": "probe", "Arn": arn("Function")}],
        )
        env.deploy(Function=function(), Rule=rule)

    def create(self, *, desired: int = 0, minimum: int = 0, maximum: int = 4, zones: int = 3) -> None:
        self.api.create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            LaunchTemplate={"LaunchTemplateName": "workers", "Version": "$Latest"},
            VPCZoneIdentifier=",".join(list(self.subnets.values())[:zones]),
            Tags=[{"Key": "team", "Value": "a", "PropagateAtLaunch": True}, {"Key": "hidden", "Value": "b"}],
        )

    def scale(self, desired: int) -> None:
        self.api.set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=desired)

    def described(self) -> dict[str, Any]:
        group: dict[str, Any]
        (group,) = self.api.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
        return group

    def states(self) -> list[str]:
        return sorted(instance["LifecycleState"] for instance in self.described()["Instances"])

    def ids(self) -> list[str]:
        return [instance["InstanceId"] for instance in self.described()["Instances"]]

    def activities(self) -> list[Any]:
        activities: list[Any] = self.api.describe_scaling_activities(AutoScalingGroupName=GROUP)["Activities"]
        return activities

    def events(self, detail_type: str) -> list[Any]:
        return [event for event in self.env.probe.events if event["detail-type"] == detail_type]

    def running(self) -> int:
        return len(self.env.cloud.instances.running)


def error_of(operation: Callable[..., object], **params: object) -> tuple[str, str]:
    with pytest.raises(ClientError) as refused:
        operation(**params)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]
