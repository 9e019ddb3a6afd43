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

from infra import function_sizes
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
    "ReadSpotRequests": "ec2:DescribeSpotInstanceRequests takes no resource; limited to the Region",
    "ReadTemplates": "ec2:DescribeLaunchTemplates takes no resource; limited to the Region",
    "ReadPlaces": "EC2's Describe calls take no resource; limited to the Region",
    "ReadTypes": "EC2's Describe calls take no resource; limited to the Region",
    "ReadPrices": "the Pricing API has no resources",
    "JoinNetwork": "Lambda itself makes and removes the function's network interfaces, whose ids nobody knows before",
}
"""The statements whose resource is ``*``, and why it can't be less."""

LAUNCHED = ("fleet", "instance", "network-interface", "spot-instances-request", "volume")
"""What a launch makes and tags (shared/launch)."""

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
    node_roles: list[str]
    """ARNs of the roles that nodes may have."""

    def ec2(self, *resources: str, shared: bool = False) -> list[str]:
        """ARNs of EC2 resource types; ``shared``: of any account (AWS's images, subnets of a shared VPC)."""
        stack = Stack.of(self.scope)
        account = "*" if shared else stack.account
        return [
            stack.format_arn(service="ec2", account=account, resource=name, resource_name="*") for name in resources
        ]

    @property
    def in_region(self) -> dict[str, Any]:
        """Only in the stack's Region."""
        return {"StringEquals": {"aws:RequestedRegion": Stack.of(self.scope).region}}

    @property
    def _cluster_tag(self) -> str:
        return labels.CLUSTER_TAG.format(cluster=self.cluster)

    def requested(self, **more: list[str]) -> dict[str, Any]:
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


def _resolve(on: Subjects) -> list[iam.PolicyStatement]:
    # What a node class stands for: subnets, security groups, images, its instance profile.
    stack = Stack.of(on.scope)
    places = (
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeImages",
        "ec2:DescribeInstances",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
    )
    own_profiles = stack.format_arn(
        service="iam", region="", resource="instance-profile", resource_name=f"tenon-{on.cluster}-*"
    )
    return [
        _any_resource("ReadPlaces", places, on.in_region),
        # AWS's own public parameters (AMIs), never the account's.
        _allow(
            "ReadPublicParameters",
            ["ssm:GetParameter", "ssm:GetParameters"],
            [stack.format_arn(service="ssm", account="", resource="parameter", resource_name="aws/service/*")],
        ),
        # A class may name a role instead of a profile: the role's profile is used, or one is made under our own name.
        _allow(
            "FindProfiles",
            ["iam:ListInstanceProfilesForRole"],
            [stack.format_arn(service="iam", region="", resource="role", resource_name="*")],
        ),
        # A class may name a profile: that it is there and has a role is told before a launch fails.
        _allow(
            "SeeProfiles",
            ["iam:GetInstanceProfile"],
            [stack.format_arn(service="iam", region="", resource="instance-profile", resource_name="*")],
        ),
        _allow("MakeProfiles", ["iam:CreateInstanceProfile", "iam:TagInstanceProfile"], [own_profiles], on.requested()),
        _allow("FillProfiles", ["iam:AddRoleToInstanceProfile"], [own_profiles]),
        # Node roles, to EC2, and nothing else to anyone.
        _allow(
            "PassNodeRoles",
            ["iam:PassRole"],
            on.node_roles,
            {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
        ),
    ]


def _launch(on: Subjects) -> list[iam.PolicyStatement]:
    stack = Stack.of(on.scope)
    shared = ("capacity-reservation", "image", "placement-group", "security-group", "snapshot", "subnet")
    return [
        # What a launch uses but does not make.
        _allow("LaunchWith", _FLEET, on.ec2(*shared, shared=True)),
        # Templates that this cluster made.
        _allow("LaunchFromOwnTemplates", _FLEET, on.ec2("launch-template"), on.owned()),
        # What a launch makes must say whose it is, or garbage collection could never find it.
        _allow(
            "LaunchTagged",
            _FLEET,
            on.ec2(*LAUNCHED),
            {**on.requested(), "StringLike": {f"aws:RequestTag/{labels.NODEPOOL}": "*"}},
        ),
        _allow("MakeTemplates", ["ec2:CreateLaunchTemplate"], on.ec2("launch-template"), on.requested()),
        # Tags may be given while creating; otherwise anyone's instance could be tagged into this cluster.
        _allow(
            "TagWhileCreating",
            ["ec2:CreateTags"],
            on.ec2(*LAUNCHED, "launch-template"),
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
    ]


def _terminate(on: Subjects) -> list[iam.PolicyStatement]:
    return [
        # Only instances of this cluster, and only those that belong to a pool: never a node group's.
        _allow(
            "TerminateOwned",
            ["ec2:TerminateInstances"],
            on.ec2("instance"),
            {**on.owned(), "StringLike": {f"aws:ResourceTag/{labels.NODEPOOL}": "*"}},
        ),
    ]


def _clear(on: Subjects) -> list[iam.PolicyStatement]:
    return [
        _any_resource("ReadTemplates", ["ec2:DescribeLaunchTemplates"], on.in_region),
        # Templates that this cluster made and that nothing comes from any more.
        _allow("DeleteOwnTemplates", ["ec2:DeleteLaunchTemplate"], on.ec2("launch-template"), on.owned()),
    ]


def _doubt(on: Subjects) -> list[iam.PolicyStatement]:
    # Whether EC2 bears out a warning; what it says of instances is read with the places.
    return [_any_resource("ReadSpotRequests", ["ec2:DescribeSpotInstanceRequests"], on.in_region)]


def _refresh(on: Subjects) -> list[iam.PolicyStatement]:
    types = (
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeSpotPriceHistory",
    )
    return [
        _any_resource("ReadTypes", types, on.in_region),
        _any_resource("ReadPrices", ["pricing:GetProducts"]),
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


def _by_setting(setting: str, function: str, on: Subjects) -> list[iam.PolicyStatement]:
    """What a function may do with what one of its settings names: knowing it and being let in are one thing."""
    queues = on.queues
    match setting:
        case "event_bus_name":
            own = {"StringEquals": {"events:source": hints.FUNCTIONS}}
            allowed = [_allow("PutHints", ["events:PutEvents"], [on.bus.event_bus_arn], own)]
        case "table_name":
            # Unavailable offerings, the call budget, wake-ups already sent, decisions; nothing is ever scanned.
            actions = ("BatchWriteItem", "GetItem", "PutItem", "Query")
            allowed = [_allow("KeepRecords", [f"dynamodb:{action}" for action in actions], [on.table.table_arn])]
        case "catalog_bucket":
            allowed = [
                _allow("ReadCatalog", ["s3:GetObject"], [on.catalog.arn_for_objects("*")]),
                # Without it S3 answers 403 instead of 404 for a catalog that isn't there yet.
                _allow("SeeCatalogMissing", ["s3:ListBucket"], [on.catalog.bucket_arn]),
            ]
        case "termination_queue_url":
            queue = queues.by_function[function_sizes.TERMINATION]
            allowed = [_allow("SendToTermination", ["sqs:SendMessage"], [queue.queue_arn])]
        case "disruption_queue_url":
            allowed = [
                _allow("WakeUpLater", ["sqs:SendMessage"], [queues.by_function[function_sizes.DISRUPTION].queue_arn])
            ]
        case "dead_letter_queue_url":
            # Malformed messages, with the reason.
            allowed = [_allow("BuryMalformed", ["sqs:SendMessage"], [queues.dead_letters[function].queue_arn])]
        case "cluster_name" | "node_instance_profile":
            allowed = []  # a name and no more
        case _:
            raise KeyError(f"setting {setting} of {function}: say here what may be done with what it names")
    return allowed


def statements(function: str, settings: Iterable[str], on: Subjects) -> list[iam.PolicyStatement]:
    """Everything that the function may do, but for its own logs and receiving from its own queue.

    Raises:
        KeyError: a setting that permissions don't know yet.
    """
    # The endpoint and its certificate authority; the API itself is RBAC's to guard.
    arn = Stack.of(on.scope).format_arn(service="eks", resource="cluster", resource_name=on.cluster)
    reach = [_allow("ReachCluster", ["eks:DescribeCluster"], [arn])]
    look = [_any_resource("ReadInstances", ["ec2:DescribeInstances"], on.in_region)]
    purposes = {
        function_sizes.PROVISIONER: lambda: [*reach, *_resolve(on), *_launch(on)],
        function_sizes.LIFECYCLE: lambda: [
            *reach,
            *_resolve(on),
            *_clear(on),
        ],  # keeps the classes' status; finds leftovers
        # Replacements first: it launches them, and gives up by deleting claims, which termination follows.
        function_sizes.DISRUPTION: lambda: [*reach, *_resolve(on), *_launch(on)],
        function_sizes.TERMINATION: lambda: [*reach, *look, *_terminate(on)],
        # Replaces at once what is taken back; giving up is deleting a claim, which termination follows.
        function_sizes.INTERRUPTION: lambda: [*reach, *_resolve(on), *_launch(on), *_doubt(on)],
        function_sizes.CATALOG: lambda: _refresh(on),
    }
    return [*purposes[function](), *(s for setting in settings for s in _by_setting(setting, function, on))]
