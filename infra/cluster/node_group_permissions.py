"""The permissions to scale node groups, only with ``-c nodeGroups=on``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import ArnFormat, Stack

from infra import function_sizes
from infra.cluster.permission_scope import allow, any_resource

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from infra.cluster.permission_scope import PermissionScope


def scale_node_groups(function: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    """What a function needs that scales node groups: one scales them down, those that launch scale them up."""
    is_down = function == function_sizes.NODE_GROUPS
    reads = [
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeLifecycleHooks" if is_down else "autoscaling:DescribeScalingActivities",
        "ec2:DescribeLaunchTemplateVersions",
    ]
    # A hook of the user's is completed once the node is drained, and kept waiting until then.
    down = ("TerminateInstanceInAutoScalingGroup", "CompleteLifecycleAction", "RecordLifecycleActionHeartbeat")
    actions = down if is_down else ("SetDesiredCapacity",)
    stack = Stack.of(on.scope)
    cluster = stack.format_arn(service="eks", resource="cluster", resource_name=on.cluster)
    managed = stack.format_arn(service="eks", resource="nodegroup", resource_name=f"{on.cluster}/*/*")
    groups = stack.format_arn(
        service="autoscaling",
        resource="autoScalingGroup",
        resource_name="*:autoScalingGroupName/*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return [
        any_resource("ReadNodeGroups", reads, on.in_region),
        allow("ReadManagedNodeGroups", ["eks:DescribeNodegroup", "eks:ListNodegroups"], [cluster, managed]),
        # Only groups that Cluster Autoscaler's tag gives to the cluster, whatever its value is.
        allow(
            "ShrinkNodeGroups" if is_down else "GrowNodeGroups",
            [f"autoscaling:{action}" for action in actions],
            [groups],
            {"Null": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{on.cluster}": "false"}},
        ),
    ]
