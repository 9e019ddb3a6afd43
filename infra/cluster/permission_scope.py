"""What permissions refer to, and how a statement is made: every one on all resources has its reason in WILDCARDS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from shared.api import labels
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_events as events
    from aws_cdk import aws_s3 as s3
    from constructs import Construct

    from infra.cluster.queues import Queues

WILDCARDS = {
    "ReadInstances": "ec2:DescribeInstances supports no resources; limited to the Region",
    "ReadSpotRequests": "ec2:DescribeSpotInstanceRequests supports no resources; limited to the Region",
    "ReadInstanceStatus": "ec2:DescribeInstanceStatus supports no resources; limited to the Region",
    "ReadTemplates": "ec2:DescribeLaunchTemplates supports no resources; limited to the Region",
    "ReadPlaces": "EC2's Describe actions support no resources; limited to the Region",
    "ReadTypes": "EC2's Describe actions support no resources; limited to the Region",
    "ReadNodeGroups": "the Describe actions of Auto Scaling and of launch template versions support no resources",
    "ReadZonalShifts": "zonal shifts of EKS clusters support no resources; limited to the cluster by a condition",
    "ReadPrices": "the Pricing API supports no resources",
    "ReadReservedInstances": "EC2's Describe actions support no resources; limited to the Region",
    "ReadSavingsPlans": "all plans of the account are read, whose ids are not known before",
    "JoinNetwork": "Lambda creates and deletes the function's network interfaces, whose ids are not known before",
}
"""The statements whose resource is ``*``, and why they can't be narrower."""


class ReadScope(Struct, kw_only=True):
    """The cluster's name and the catalog's bucket, which permissions to read refer to.

    ``commitments``: whether the catalog function reads the account's commitments.
    """

    cluster: str
    scope: Construct
    catalog: s3.IBucket
    commitments: bool = False

    @property
    def in_region(self) -> dict[str, Any]:
        """Condition: only in the stack's Region."""
        return {"StringEquals": {"aws:RequestedRegion": Stack.of(self.scope).region}}

    @property
    def cluster_arn(self) -> str:
        """The EKS cluster."""
        return Stack.of(self.scope).format_arn(service="eks", resource="cluster", resource_name=self.cluster)


class PermissionScope(ReadScope, kw_only=True):
    """The stack's other resources, which permissions refer to."""

    bus: events.IEventBus
    queues: Queues
    table: dynamodb.Table
    node_roles: list[str]
    """ARNs of the roles of nodes."""
    kms_keys: Sequence[str] = ()
    """ARNs of the customer managed keys of volumes."""
    buffer_queues: Sequence[str] = ()
    buffer_alarms: Sequence[str] = ()
    """Names of the queues and alarms that CapacityBuffers may follow."""
    standby: bool = False
    """Whether NodePools may have standby nodes."""
    reboot: bool = False
    """Whether nodes may be rebooted in place."""
    zonal_shift: bool = False
    """Whether ARC's zonal shifts of the cluster are followed."""
    node_groups: bool = False
    """Whether the cluster's node groups are scaled."""
    sweeps_table: str = ""
    """The name of the fleet's table with the clusters' last sweeps, "" without a fleet."""

    def ec2(self, *resources: str, shared: bool = False) -> list[str]:
        """ARNs of EC2 resource types; ``shared``: of any account (AWS's images, subnets of a shared VPC)."""
        stack = Stack.of(self.scope)
        account = "*" if shared else stack.account
        return [
            stack.format_arn(service="ec2", account=account, resource=name, resource_name="*") for name in resources
        ]

    @property
    def _cluster_tag(self) -> str:
        return labels.CLUSTER_TAG.format(cluster=self.cluster)

    def requested(self, **more: list[str]) -> dict[str, Any]:
        """Condition: the request tags new resources as the cluster's."""
        return {"StringEquals": {f"aws:RequestTag/{self._cluster_tag}": "owned", **more}}

    def owned(self) -> dict[str, Any]:
        """Condition: the resource is tagged as the cluster's."""
        return {"StringEquals": {f"aws:ResourceTag/{self._cluster_tag}": "owned"}}


def of_source(source: str, detail_types: str = "") -> dict[str, Any]:
    """Condition: every event of the call has this source, and a type like ``detail_types`` if that is given.

    Both keys have several values by the service authorization reference, so they need a set operator; an operator
    without one may not match them. ForAllValues also holds where a key is missing, which Null refuses for the source.
    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-event-bus-example-policy-cross-account-custom-bus-source.html
    """
    condition: dict[str, Any] = {
        "ForAllValues:StringEquals": {"events:source": source},
        "Null": {"events:source": "false"},
    }
    if detail_types:
        condition["ForAllValues:StringLike"] = {"events:detail-type": detail_types}
    return condition


def allow(
    sid: str, actions: Iterable[str], resources: Iterable[str], conditions: dict[str, Any] | None = None
) -> iam.PolicyStatement:
    """A statement on these resources."""
    return iam.PolicyStatement(sid=sid, actions=list(actions), resources=list(resources), conditions=conditions)


def any_resource(sid: str, actions: Iterable[str], conditions: dict[str, Any] | None = None) -> iam.PolicyStatement:
    """A statement on every resource.

    Raises:
        KeyError: WILDCARDS doesn't say why it can't be narrower.
    """
    if sid not in WILDCARDS:
        raise KeyError(f"{sid}: a statement on every resource needs its reason in WILDCARDS")
    return allow(sid, actions, ["*"], conditions)
