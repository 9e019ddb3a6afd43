"""The IAM actions of calls about node groups: Auto Scaling's with the group's tags, and EKS's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from local.aws.iam_context import CallContext, Params, Permission

_READS = ("AutoScalingGroups", "AutoScalingInstances", "ScalingActivities", "Tags", "LifecycleHooks", "WarmPool")

_ON_GROUPS = (
    "SetDesiredCapacity",
    "PutLifecycleHook",
    "DeleteLifecycleHook",
    "CompleteLifecycleAction",
    "RecordLifecycleActionHeartbeat",
    "PutWarmPool",
    "DeleteWarmPool",
)


def _on_group(action: str) -> Callable[[Params, CallContext], Iterator[Permission]]:
    def permissions(params: Params, at: CallContext) -> Iterator[Permission]:
        yield _permission(action, str(params["AutoScalingGroupName"]), at)

    return permissions


def _terminate(params: Params, at: CallContext) -> Iterator[Permission]:
    group = at.resources.group_of_instance(str(params["InstanceId"]))
    yield _permission("autoscaling:TerminateInstanceInAutoScalingGroup", group, at)


def _permission(action: str, group: str, at: CallContext) -> Permission:
    """The permission with the group's tags under both keys; a group that doesn't exist has any id and name."""
    id_, tags = at.resources.auto_scaling_group(group)
    resource = at.arn("autoscaling", f"autoScalingGroup:{id_ or '*'}:autoScalingGroupName/{group or '*'}")
    keys = ("aws:ResourceTag", "autoscaling:ResourceTag")
    return action, resource, {f"{key}/{tag}": [value] for key in keys for tag, value in tags.items()}


def _list_node_groups(params: Params, at: CallContext) -> Iterator[Permission]:
    yield "eks:ListNodegroups", at.arn("eks", f"cluster/{params['clusterName']}"), {}


def _describe_node_group(params: Params, at: CallContext) -> Iterator[Permission]:
    cluster, name = str(params["clusterName"]), str(params["nodegroupName"])
    id_ = at.resources.node_group_id(cluster, name)
    yield "eks:DescribeNodegroup", at.arn("eks", f"nodegroup/{cluster}/{name}/{id_ or '*'}"), {}


WITHOUT_RESOURCE = frozenset(f"autoscaling:Describe{resources}" for resources in _READS)
"""Calls without resource-level permissions."""

BY_CALL: Mapping[str, Callable[[Params, CallContext], Iterator[Permission]]] = {
    **{f"autoscaling:{action}": _on_group(f"autoscaling:{action}") for action in _ON_GROUPS},
    "autoscaling:TerminateInstanceInAutoScalingGroup": _terminate,
    "eks:ListNodegroups": _list_node_groups,
    "eks:DescribeNodegroup": _describe_node_group,
}
