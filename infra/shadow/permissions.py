"""The IAM permissions of shadow mode: to describe, get and list; and to write the catalog and the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack

from infra import function_sizes
from infra.cluster.permission_scope import allow, any_resource
from infra.cluster.permissions import reach_cluster, read_catalog, read_places, refresh_catalog
from shared.shadow.store import PREFIX

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from infra.cluster.permission_scope import ReadScope


def shadow_statements(function: str, on: ReadScope) -> list[iam.PolicyStatement]:
    """The permissions of a function in shadow mode, except for its logs."""
    if function == function_sizes.CATALOG:
        return [*refresh_catalog(on), *read_catalog(on)]
    groups = ("autoscaling:DescribeAutoScalingGroups", "ec2:DescribeLaunchTemplateVersions")
    managed = Stack.of(on.scope).format_arn(service="eks", resource="nodegroup", resource_name=f"{on.cluster}/*/*")
    return [
        reach_cluster(on),
        *read_places(on),
        # The node groups that Cluster Autoscaler scales.
        any_resource("ReadNodeGroups", groups, on.in_region),
        allow("ReadManagedNodeGroups", ["eks:DescribeNodegroup", "eks:ListNodegroups"], [on.cluster_arn, managed]),
        *read_catalog(on),
        # Its own record, and the days that have ended.
        allow("KeepRecord", ["s3:PutObject"], [on.catalog.arn_for_objects(f"{PREFIX}*")]),
    ]
