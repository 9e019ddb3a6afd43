"""Finds a cluster's node groups: Auto Scaling groups with Cluster Autoscaler's tags, and managed node groups.

Auto-discovery is Cluster Autoscaler's: a group with both tags ``k8s.io/cluster-autoscaler/enabled`` and
``k8s.io/cluster-autoscaler/CLUSTER`` belongs to the cluster. EKS gives both to the groups of managed node groups.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from shared.base.struct import Struct
from shared.node_groups.descriptions import AutoScalingGroup, ManagedNodeGroup
from shared.node_groups.node_group import ENABLED_TAG, TAG, node_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.node_groups.node_group import NodeGroup

Client = Any
"""A boto3 client."""
_DETAILS_TTL = timedelta(minutes=5)
"""Managed node groups' labels and taints and launch templates change seldom, and EKS allows few calls."""


class Details(Struct):
    """What is read of groups besides Auto Scaling's own description: managed node groups by group, and templates."""

    managed: Mapping[str, ManagedNodeGroup]
    template_types: Mapping[str, tuple[str, bool]]


DetailsCache = dict[tuple[str, frozenset[tuple[str, str]]], tuple[datetime, Details]]
"""By cluster, groups and launch templates: when they were read, and what."""


def discover(
    cluster: str,
    *,
    autoscaling: Client,
    ec2: Client,
    eks: Client,
    now: datetime | None = None,
    cache: DetailsCache | None = None,
) -> tuple[NodeGroup, ...]:
    """The cluster's node groups, by name. With ``cache`` their details are up to five minutes old.

    Raises:
        ClientError, BotoCoreError: AWS refuses a call.
    """
    groups = _auto_scaling_groups(cluster, autoscaling)
    if not groups:
        return ()
    key = (cluster, frozenset((g.auto_scaling_group_name, g.template_key) for g in groups))
    cached = cache.get(key) if cache is not None else None
    if cached is not None and now is not None and now - cached[0] < _DETAILS_TTL:
        details = cached[1]
    else:
        managed = {name: group for group in _managed(cluster, eks) for name in group.auto_scaling_groups}
        details = Details(managed, _template_types(ec2, groups))
        if cache is not None and now is not None:
            cache.clear()
            cache[key] = (now, details)
    node_groups = (
        node_group(group, details.managed.get(group.auto_scaling_group_name), details.template_types)
        for group in groups
    )
    return tuple(sorted(node_groups, key=lambda group: group.name))


def _auto_scaling_groups(cluster: str, autoscaling: Client) -> tuple[AutoScalingGroup, ...]:
    """The groups with both tags. The filter of AWS takes any of several keys, so the second is compared here."""
    filters = [{"Name": "tag-key", "Values": [f"{TAG}{cluster}"]}]
    pages = autoscaling.get_paginator("describe_auto_scaling_groups").paginate(Filters=filters)
    described = (msgspec.convert(raw, AutoScalingGroup) for page in pages for raw in page["AutoScalingGroups"])
    return tuple(group for group in described if {ENABLED_TAG, f"{TAG}{cluster}"} <= {tag.key for tag in group.tags})


def describe(autoscaling: Client, name: str) -> AutoScalingGroup | None:
    """The Auto Scaling group of that name as it is now; None if there is none.

    Raises:
        ClientError, BotoCoreError: AWS refuses the call.
    """
    answer = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    return next((msgspec.convert(raw, AutoScalingGroup) for raw in answer["AutoScalingGroups"]), None)


def _managed(cluster: str, eks: Client) -> Iterable[ManagedNodeGroup]:
    for page in eks.get_paginator("list_nodegroups").paginate(clusterName=cluster):
        for name in page["nodegroups"]:
            described = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
            yield msgspec.convert(described, ManagedNodeGroup)


def _template_types(ec2: Client, groups: Iterable[AutoScalingGroup]) -> dict[str, tuple[str, bool]]:
    """By launch template and version: the instance type ("" if it has none), and whether it asks for spot."""
    templates = {g.template_key: g.template for g in groups if g.template is not None}
    types = {}
    for key, template in sorted(templates.items()):
        by = (
            {"LaunchTemplateId": template.launch_template_id}
            if template.launch_template_id
            else {"LaunchTemplateName": template.launch_template_name}
        )
        answer = ec2.describe_launch_template_versions(**by, Versions=[template.version or "$Default"])
        data = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        is_spot = data.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
        types[key] = (str(data.get("InstanceType", "")), is_spot)
    return types
