"""The IAM permissions of each function: one statement for each purpose, with its reason.

Roles that launch instances can't terminate them, and the role that terminates can't launch. Launching requires the
cluster's tag on the request, terminating requires it on the resource, so neither affects other clusters' resources.
Actions and conditions are those of AWS's service authorization reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam

from infra import function_sizes
from shared import hints
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_events as events
    from aws_cdk import aws_s3 as s3
    from constructs import Construct

    from infra.queues import Queues

WILDCARDS = {
    "ReadInstances": "ec2:DescribeInstances supports no resources; limited to the Region",
    "ReadSpotRequests": "ec2:DescribeSpotInstanceRequests supports no resources; limited to the Region",
    "ReadTemplates": "ec2:DescribeLaunchTemplates supports no resources; limited to the Region",
    "ReadPlaces": "EC2's Describe actions support no resources; limited to the Region",
    "ReadTypes": "EC2's Describe actions support no resources; limited to the Region",
    "ReadPrices": "the Pricing API supports no resources",
    "JoinNetwork": "Lambda creates and deletes the function's network interfaces, whose ids are not known before",
}
"""The statements whose resource is ``*``, and why they can't be narrower."""

LAUNCHED = ("fleet", "instance", "network-interface", "spot-instances-request", "volume")
"""The resources that a launch creates and tags (shared/launch)."""

_FLEET = ("ec2:CreateFleet", "ec2:RunInstances")  # an instant fleet runs instances with its caller's permissions


@dataclass(frozen=True, kw_only=True)
class PermissionScope:
    """The cluster's name and the stack's resources, which permissions refer to."""

    cluster: str
    scope: Construct
    bus: events.IEventBus
    queues: Queues
    table: dynamodb.Table
    catalog: s3.Bucket
    node_roles: list[str]
    """ARNs of the roles of nodes."""
    kms_keys: Sequence[str] = ()
    """ARNs of the customer managed keys of volumes."""
    buffer_queues: Sequence[str] = ()
    buffer_alarms: Sequence[str] = ()
    """Names of the queues and alarms that CapacityBuffers may follow."""
    standby: bool = False
    """Whether NodePools may have standby nodes."""

    def ec2(self, *resources: str, shared: bool = False) -> list[str]:
        """ARNs of EC2 resource types; ``shared``: of any account (AWS's images, subnets of a shared VPC)."""
        stack = Stack.of(self.scope)
        account = "*" if shared else stack.account
        return [
            stack.format_arn(service="ec2", account=account, resource=name, resource_name="*") for name in resources
        ]

    @property
    def in_region(self) -> dict[str, Any]:
        """Condition: only in the stack's Region."""
        return {"StringEquals": {"aws:RequestedRegion": Stack.of(self.scope).region}}

    @property
    def _cluster_tag(self) -> str:
        return labels.CLUSTER_TAG.format(cluster=self.cluster)

    def requested(self, **more: list[str]) -> dict[str, Any]:
        """Condition: the request tags new resources as the cluster's."""
        return {"StringEquals": {f"aws:RequestTag/{self._cluster_tag}": "owned", **more}}

    def owned(self) -> dict[str, Any]:
        """Condition: the resource is tagged as the cluster's."""
        return {"StringEquals": {f"aws:ResourceTag/{self._cluster_tag}": "owned"}}


def _allow(
    sid: str, actions: Iterable[str], resources: Iterable[str], conditions: dict[str, Any] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=list(actions), resources=list(resources), conditions=conditions)


def _any_resource(sid: str, actions: Iterable[str], conditions: dict[str, Any] | None = None) -> iam.PolicyStatement:
    if sid not in WILDCARDS:
        raise KeyError(f"{sid}: a statement on every resource needs its reason in WILDCARDS")
    return _allow(sid, actions, ["*"], conditions)


def _resolve_node_class(on: PermissionScope) -> list[iam.PolicyStatement]:
    # The resources of a node class: subnets, security groups, images, its instance profile.
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
        # A node class may have a role instead of a profile: the role's profile is used, or Tenon creates one.
        _allow(
            "FindProfiles",
            ["iam:ListInstanceProfilesForRole"],
            [stack.format_arn(service="iam", region="", resource="role", resource_name="*")],
        ),
        # A node class may have a profile: that it exists and has a role is checked before a launch fails.
        _allow(
            "SeeProfiles",
            ["iam:GetInstanceProfile"],
            [stack.format_arn(service="iam", region="", resource="instance-profile", resource_name="*")],
        ),
        _allow("MakeProfiles", ["iam:CreateInstanceProfile", "iam:TagInstanceProfile"], [own_profiles], on.requested()),
        _allow("FillProfiles", ["iam:AddRoleToInstanceProfile"], [own_profiles]),
        # Only node roles, and only to EC2.
        _allow(
            "PassNodeRoles",
            ["iam:PassRole"],
            on.node_roles,
            {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
        ),
    ]


def _launch(on: PermissionScope) -> list[iam.PolicyStatement]:
    stack = Stack.of(on.scope)
    shared = ("capacity-reservation", "image", "placement-group", "security-group", "snapshot", "subnet")
    return [
        # Resources that a launch uses but doesn't create.
        _allow("LaunchWith", _FLEET, on.ec2(*shared, shared=True)),
        # Only launch templates of this cluster.
        _allow("LaunchFromOwnTemplates", _FLEET, on.ec2("launch-template"), on.owned()),
        # New resources must have the cluster's tags, or garbage collection could not find them.
        _allow(
            "LaunchTagged",
            _FLEET,
            on.ec2(*LAUNCHED),
            {**on.requested(), "StringLike": {f"aws:RequestTag/{labels.NODEPOOL}": "*"}},
        ),
        _allow("MakeTemplates", ["ec2:CreateLaunchTemplate"], on.ec2("launch-template"), on.requested()),
        # Only while creating; otherwise any instance could be tagged as the cluster's.
        _allow(
            "TagWhileCreating",
            ["ec2:CreateTags"],
            on.ec2(*LAUNCHED, "launch-template"),
            on.requested(**{"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}),
        ),
        # The NodeClaim of an instance is only known after the launch.
        _allow(
            "TagOwnInstances",
            ["ec2:CreateTags"],
            on.ec2("instance"),
            {
                **on.owned(),
                "ForAllValues:StringEquals": {"aws:TagKeys": ["Name", labels.NODECLAIM_TAG, labels.CLUSTER_NAME_TAG]},
            },
        ),
        # The first spot launch of an account creates this service-linked role of EC2.
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
        *(_use_keys(on) if on.kms_keys else ()),
    ]


def _use_keys(on: PermissionScope) -> list[iam.PolicyStatement]:
    # EC2 encrypts volumes with the permissions of CreateFleet's caller (EBS User Guide, "Requirements for Amazon EBS
    # encryption"). Spot instances of encrypted AMIs or snapshots need a grant for AWSServiceRoleForEC2Spot as well (EC2
    # User Guide, "Service-linked role for Spot Instance requests").
    stack = Stack.of(on.scope)
    through_ec2 = {"kms:ViaService": f"ec2.{stack.region}.{stack.url_suffix}"}
    use = ("Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo")
    return [
        _allow("UseVolumeKeys", [f"kms:{action}" for action in use], on.kms_keys, {"StringEquals": through_ec2}),
        # Only grants that let AWS's own services use the key, so that EC2 can attach the volumes later.
        _allow(
            "GrantVolumeKeys",
            ["kms:CreateGrant"],
            on.kms_keys,
            {"StringEquals": through_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
    ]


def _terminate(on: PermissionScope) -> list[iam.PolicyStatement]:
    return [
        # Only instances of this cluster that belong to a NodePool, never those of node groups.
        _allow(
            "TerminateOwned",
            ["ec2:TerminateInstances"],
            on.ec2("instance"),
            {**on.owned(), "StringLike": {f"aws:ResourceTag/{labels.NODEPOOL}": "*"}},
        ),
    ]


def _standby(function: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    # Only instances of this cluster that belong to a NodePool. One function stops them, those that launch start them.
    own_nodes = {**on.owned(), "StringLike": {f"aws:ResourceTag/{labels.NODEPOOL}": "*"}}
    if function == function_sizes.LIFECYCLE:
        return [_allow("StopOwned", ["ec2:StopInstances"], on.ec2("instance"), own_nodes)]
    return [_allow("StartOwned", ["ec2:StartInstances"], on.ec2("instance"), own_nodes)]


def _delete_templates(on: PermissionScope) -> list[iam.PolicyStatement]:
    return [
        _any_resource("ReadTemplates", ["ec2:DescribeLaunchTemplates"], on.in_region),
        # Launch templates of this cluster that are no longer used.
        _allow("DeleteOwnTemplates", ["ec2:DeleteLaunchTemplate"], on.ec2("launch-template"), on.owned()),
    ]


def _verify(on: PermissionScope) -> list[iam.PolicyStatement]:
    # To verify spot interruption warnings; instances are read with ReadPlaces.
    return [_any_resource("ReadSpotRequests", ["ec2:DescribeSpotInstanceRequests"], on.in_region)]


def _refresh_catalog(on: PermissionScope) -> list[iam.PolicyStatement]:
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
    """What a function's role needs for a function in a VPC."""
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


def _read_sources(setting: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    """What CapacityBuffers may follow: nothing without a name."""
    stack = Stack.of(on.scope)
    if setting == "buffer_queues":
        # Only how many messages there are, never what they say.
        actions = ["sqs:GetQueueAttributes", "sqs:GetQueueUrl"]
        queues = [stack.format_arn(service="sqs", resource=name) for name in on.buffer_queues]
        return [_allow("CountMessages", actions, queues)] if queues else []
    # On these alarms: CloudWatch then answers for alarms of metrics only, not for composite ones (DescribeAlarms).
    alarms = [
        stack.format_arn(
            service="cloudwatch", resource="alarm", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
        )
        for name in on.buffer_alarms
    ]
    return [_allow("SeeAlarms", ["cloudwatch:DescribeAlarms"], alarms)] if alarms else []


def _by_setting(setting: str, function: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    """The permissions that follow from a setting: a function that knows a resource may use it."""
    queues = on.queues
    match setting:
        case "event_bus_name":
            own = {"StringEquals": {"events:source": hints.FUNCTIONS}}
            allowed = [_allow("PutHints", ["events:PutEvents"], [on.bus.event_bus_arn], own)]
        case "table_name":
            # Unavailable offerings, partial launches, interruption rates, the call budget, wake-ups already sent,
            # decisions. The table is never scanned. Only the interruption function adds to what others have counted.
            adds = ("UpdateItem",) if function == function_sizes.INTERRUPTION else ()
            actions = ("BatchWriteItem", "GetItem", "PutItem", "Query", *adds)
            allowed = [_allow("KeepRecords", [f"dynamodb:{action}" for action in actions], [on.table.table_arn])]
        case "catalog_bucket":
            allowed = [
                _allow("ReadCatalog", ["s3:GetObject"], [on.catalog.arn_for_objects("*")]),
                # Without it S3 returns 403 instead of 404 for a catalog that doesn't exist yet.
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
        case "buffer_queues" | "buffer_alarms":
            allowed = _read_sources(setting, on)
        case "standby":
            allowed = _standby(function, on) if on.standby else []
        case "cluster_name" | "node_instance_profile" | "planned_pods" | "buffer_events":
            allowed = []  # a name or an option
        case _:
            raise KeyError(f"setting {setting} of {function}: add its permissions here")
    return allowed


def statements(function: str, settings: Iterable[str], on: PermissionScope) -> list[iam.PolicyStatement]:
    """The function's permissions, except for its logs and its own queue.

    Raises:
        KeyError: the permissions of a setting are not defined.
    """
    # The endpoint and its certificate authority; RBAC guards the API itself.
    arn = Stack.of(on.scope).format_arn(service="eks", resource="cluster", resource_name=on.cluster)
    describe_cluster = [_allow("ReachCluster", ["eks:DescribeCluster"], [arn])]
    describe_instances = [_any_resource("ReadInstances", ["ec2:DescribeInstances"], on.in_region)]
    purposes = {
        function_sizes.PROVISIONER: lambda: [*describe_cluster, *_resolve_node_class(on), *_launch(on)],
        function_sizes.LIFECYCLE: lambda: [
            *describe_cluster,
            *_resolve_node_class(on),
            *_delete_templates(on),
        ],  # updates the status of node classes; collects garbage
        # It launches replacements first and deletes NodeClaims then, which the termination function handles.
        function_sizes.DISRUPTION: lambda: [*describe_cluster, *_resolve_node_class(on), *_launch(on)],
        function_sizes.TERMINATION: lambda: [*describe_cluster, *describe_instances, *_terminate(on)],
        # It launches replacements and deletes NodeClaims, which the termination function handles.
        function_sizes.INTERRUPTION: lambda: [*describe_cluster, *_resolve_node_class(on), *_launch(on), *_verify(on)],
        function_sizes.CATALOG: lambda: _refresh_catalog(on),
        # Its other permissions follow from the queues and alarms that the deployment names.
        function_sizes.BUFFERS: lambda: describe_cluster,
    }
    return [*purposes[function](), *(s for setting in settings for s in _by_setting(setting, function, on))]
