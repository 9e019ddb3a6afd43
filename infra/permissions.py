"""What each function may do on AWS, one statement a purpose, each with its reason beside it.

The role that launches can't terminate and the role that terminates can't launch: creating needs the cluster's tag on
the request, terminating needs it on the resource, so neither reaches what is not the cluster's. Names and conditions
are those of AWS's service authorization reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from infra import sizes
from shared import hints
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_events as events
    from aws_cdk import aws_s3 as s3
    from constructs import Construct

    from infra.queues import Queues

WILDCARDS = {
    "ReadInstances": "ec2:DescribeInstances takes no resource; limited to the Region",
    "ReadPlaces": "EC2's Describe calls take no resource; limited to the Region",
    "ReadTypes": "EC2's Describe calls take no resource; limited to the Region",
    "ReadPrices": "the Pricing API has no resources",
    "JoinNetwork": "Lambda itself makes and removes the function's network interfaces, whose ids nobody knows before",
}
"""The statements whose resource is ``*``, and why it can't be less."""

_FLEET = ("ec2:CreateFleet", "ec2:RunInstances")  # an instant fleet runs instances in its caller's name


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """What permissions are about: the cluster's name, and the stack's own resources."""

    cluster: str
    scope: Construct
    bus: events.IEventBus
    queues: Queues
    table: dynamodb.Table
    catalog: s3.Bucket
    node_role: iam.IRole

    def ec2(self, *resources: str, shared: bool = False) -> list[str]:
        """ARNs of EC2 resource types; ``shared``: of any account (AWS's images, subnets of a shared VPC)."""
        stack = Stack.of(self.scope)
        account = "*" if shared else stack.account
        return [stack.format_arn(service="ec2", account=account, resource=name, resource_name="*") for name in resources]

    @property
    def in_region(self) -> dict[str, Any]:
        """Only in the stack's Region."""
        return {"StringEquals": {"aws:RequestedRegion": Stack.of(self.scope).region}}

    @property
    def _cluster_tag(self) -> str:
        return labels.CLUSTER_TAG.format(cluster=self.cluster)

    def requested(self, **more: Any) -> dict[str, Any]:
        """The request must tag what it creates as the cluster's."""
        return {"StringEquals": {f"aws:RequestTag/{self._cluster_tag}": "owned", **more}}

    def owned(self) -> dict[str, Any]:
        """The resource must be tagged as the cluster's."""
        return {"StringEquals": {f"aws:ResourceTag/{self._cluster_tag}": "owned"}}


def _allow(
    sid: str, actions: Iterable[str], resources: Iterable[str], conditions: dict[str, Any] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=list(actions), resources=list(resources), conditions=conditions)


def _any_resource(sid: str, actions: Iterable[str], conditions: dict[str, Any] | None = None) -> iam.PolicyStatement:
    if sid not in WILDCARDS:
        raise KeyError(f"{sid}: a statement on every resource needs its reason in WILDCARDS")
    return _allow(sid, actions, ["*"], conditions)


def _reach_cluster(on: Subjects) -> iam.PolicyStatement:
    # The endpoint and its certificate authority; the API itself is RBAC's to guard.
    arn = Stack.of(on.scope).format_arn(service="eks", resource="cluster", resource_name=on.cluster)
    return _allow("ReachCluster", ["eks:DescribeCluster"], [arn])


def _send(on: Subjects, *functions: str) -> iam.PolicyStatement:
    # Work for another function, or for itself later.
    return _allow("SendWork", ["sqs:SendMessage"], [on.queues.by_function[name].queue_arn for name in functions])


def _bury(on: Subjects, function: str) -> iam.PolicyStatement:
    # Malformed messages go to the function's own dead-letter queue with the reason.
    return _allow("BuryMalformed", ["sqs:SendMessage"], [on.queues.dead_letters[function].queue_arn])


def _keep_records(on: Subjects) -> iam.PolicyStatement:
    # Unavailable offerings, the call budget, idempotency records, the decision log; nothing is ever scanned.
    actions = ("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem")
    return _allow("KeepRecords", [f"dynamodb:{action}" for action in actions], [on.table.table_arn])


def _read_catalog(on: Subjects) -> list[iam.PolicyStatement]:
    return [
        _allow("ReadCatalog", ["s3:GetObject"], [on.catalog.arn_for_objects("*")]),
        # Without it S3 answers 403 instead of 404 for a catalog that isn't there yet.
        _allow("SeeCatalogMissing", ["s3:ListBucket"], [on.catalog.bucket_arn]),
    ]


def _read_instances(on: Subjects) -> iam.PolicyStatement:
    return _any_resource("ReadInstances", ["ec2:DescribeInstances"], on.in_region)


def _launch(on: Subjects) -> list[iam.PolicyStatement]:
    stack = Stack.of(on.scope)
    tagged = ("fleet", "instance", "volume")
    places = (
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeImages",
        "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
    )
    return [
        # What a launch uses but does not make, and the two that EC2 makes along with an instance and does not tag.
        _allow(
            "LaunchWith",
            _FLEET,
            [
                *on.ec2(
                    "capacity-reservation",
                    "image",
                    "placement-group",
                    "security-group",
                    "snapshot",
                    "subnet",
                    shared=True,
                ),
                *on.ec2("network-interface", "spot-instances-request"),
            ],
        ),
        # Templates that this cluster made.
        _allow("LaunchFromOwnTemplates", _FLEET, on.ec2("launch-template"), on.owned()),
        # What a launch makes must say whose it is, or garbage collection could never find it.
        _allow(
            "LaunchTagged",
            _FLEET,
            on.ec2(*tagged),
            {**on.requested(), "StringLike": {f"aws:RequestTag/{labels.NODEPOOL}": "*"}},
        ),
        _allow("MakeTemplates", ["ec2:CreateLaunchTemplate"], on.ec2("launch-template"), on.requested()),
        # Tags may be given while creating; otherwise anyone's instance could be tagged into this cluster.
        _allow(
            "TagWhileCreating",
            ["ec2:CreateTags"],
            on.ec2(*tagged, "launch-template", "network-interface", "spot-instances-request"),
            on.requested(**{"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}),
        ),
        # Which claim an instance was dealt to is known after the launch only.
        _allow(
            "TagOwnInstances",
            ["ec2:CreateTags"],
            on.ec2("instance"),
            {
                **on.owned(),
                "ForAllValues:StringEquals": {"aws:TagKeys": ["Name", labels.NODECLAIM_TAG, labels.CLUSTER_NAME_TAG]},
            },
        ),
        # The node role, to EC2, and nothing else to anyone.
        _allow(
            "PassNodeRole",
            ["iam:PassRole"],
            [on.node_role.role_arn],
            {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
        ),
        # An account's first spot launch needs this role of EC2's.
        _allow(
            "AllowFirstSpot",
            ["iam:CreateServiceLinkedRole"],
            [
                stack.format_arn(
                    service="iam",
                    region="",
                    resource="role",
                    resource_name="aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",
                )
            ],
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        ),
        # Whether a profile that a class names is there, before a launch fails over it.
        _allow(
            "ReadInstanceProfiles",
            ["iam:GetInstanceProfile"],
            [stack.format_arn(service="iam", region="", resource="instance-profile", resource_name="*")],
        ),
        # AWS's own public parameters (AMIs), never the account's.
        _allow(
            "ReadPublicParameters",
            ["ssm:GetParameter", "ssm:GetParameters"],
            [stack.format_arn(service="ssm", account="", resource="parameter", resource_name="aws/service/*")],
        ),
        _any_resource("ReadPlaces", places, on.in_region),
    ]


def _provisioner(on: Subjects) -> list[iam.PolicyStatement]:
    return [
        _reach_cluster(on),
        *_launch(on),
        *_read_catalog(on),
        _keep_records(on),
        _bury(on, sizes.PROVISIONER),
        # "Catalog Missing".
        _allow(
            "PutHints",
            ["events:PutEvents"],
            [on.bus.event_bus_arn],
            {"StringEquals": {"events:source": hints.SELF}},
        ),
    ]


def _lifecycle(on: Subjects) -> list[iam.PolicyStatement]:
    # It launches too: a claim whose launch was cut short is launched again by the sweep.
    return [
        _reach_cluster(on),
        *_launch(on),
        *_read_catalog(on),
        _keep_records(on),
        _send(on, sizes.TERMINATION),
    ]


def _disruption(on: Subjects) -> list[iam.PolicyStatement]:
    # It writes claims to the cluster and hands the rest to the functions that launch and terminate.
    return [
        _reach_cluster(on),
        _read_instances(on),
        *_read_catalog(on),
        _keep_records(on),
        _send(on, sizes.DISRUPTION, sizes.TERMINATION),
        _bury(on, sizes.DISRUPTION),
    ]


def _termination(on: Subjects) -> list[iam.PolicyStatement]:
    return [
        _reach_cluster(on),
        _read_instances(on),
        # Only instances of this cluster, and only those that belong to a pool: never a node group's.
        _allow(
            "TerminateOwned",
            ["ec2:TerminateInstances"],
            on.ec2("instance"),
            {**on.owned(), "StringLike": {f"aws:ResourceTag/{labels.NODEPOOL}": "*"}},
        ),
        _send(on, sizes.TERMINATION),
        _bury(on, sizes.TERMINATION),
    ]


def _interruption(on: Subjects) -> list[iam.PolicyStatement]:
    return [
        _reach_cluster(on),
        _read_instances(on),
        # Marks offerings as unavailable.
        _allow(
            "MarkOfferings",
            ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"],
            [on.table.table_arn],
        ),
        _send(on, sizes.TERMINATION),
        _bury(on, sizes.INTERRUPTION),
    ]


def _catalog(on: Subjects) -> list[iam.PolicyStatement]:
    types = (
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeSpotPriceHistory",
    )
    return [
        _any_resource("ReadTypes", types, on.in_region),
        _any_resource("ReadPrices", ["pricing:GetProducts"]),
        *_read_catalog(on),
        _allow("WriteCatalog", ["s3:PutObject"], [on.catalog.arn_for_objects("*")]),
    ]


def join_network() -> iam.PolicyStatement:
    """What Lambda needs of a function's role to put the function into a VPC."""
    return _any_resource(
        "JoinNetwork",
        [
            "ec2:AssignPrivateIpAddresses",
            "ec2:CreateNetworkInterface",
            "ec2:DeleteNetworkInterface",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:UnassignPrivateIpAddresses",
        ],
    )


def statements(function: str, on: Subjects) -> list[iam.PolicyStatement]:
    """Everything that the function may do, but for its own logs and receiving from its own queue."""
    return {
        sizes.PROVISIONER: _provisioner,
        sizes.LIFECYCLE: _lifecycle,
        sizes.DISRUPTION: _disruption,
        sizes.TERMINATION: _termination,
        sizes.INTERRUPTION: _interruption,
        sizes.CATALOG: _catalog,
    }[function](on)
