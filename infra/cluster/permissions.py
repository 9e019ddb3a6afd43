"""The IAM permissions of each function: one statement for each purpose, with its reason.

Roles that launch instances can't terminate them, and the role that terminates can't launch. Launching requires the
cluster's tag on the request, terminating requires it on the resource, so neither affects other clusters' resources.
Actions and conditions are those of AWS's service authorization reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam

from infra import function_sizes
from infra.cluster.node_group_permissions import scale_node_groups
from infra.cluster.permission_scope import allow, any_resource, of_source
from shared.api import labels
from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infra.cluster.permission_scope import PermissionScope, ReadScope

LAUNCHED = ("fleet", "instance", "network-interface", "spot-instances-request", "volume")
"""The resources that a launch creates and tags (shared/launch)."""

_SPOT_ROLE = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
_FLEET = ("ec2:CreateFleet", "ec2:RunInstances")  # an instant fleet runs instances with its caller's permissions


def read_places(on: ReadScope) -> list[iam.PolicyStatement]:
    """What selectors of a node class select: subnets, security groups, images, capacity reservations."""
    places = (
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeImages",
        "ec2:DescribeInstances",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
    )
    # AWS's own public parameters (AMIs), never the account's.
    public = Stack.of(on.scope).format_arn(
        service="ssm", account="", resource="parameter", resource_name="aws/service/*"
    )
    return [
        any_resource("ReadPlaces", places, on.in_region),
        allow("ReadPublicParameters", ["ssm:GetParameter", "ssm:GetParameters"], [public]),
    ]


def _resolve_node_class(on: PermissionScope) -> list[iam.PolicyStatement]:
    # The resources of a node class: what its selectors select, and its instance profile.
    stack = Stack.of(on.scope)
    own_profiles = stack.format_arn(
        service="iam", region="", resource="instance-profile", resource_name=f"tenon-{on.cluster}-*"
    )
    return [
        *read_places(on),
        # A node class may have a role instead of a profile: the role's profile is used, or Tenon creates one.
        allow(
            "FindProfiles",
            ["iam:ListInstanceProfilesForRole"],
            [stack.format_arn(service="iam", region="", resource="role", resource_name="*")],
        ),
        # A node class may have a profile: that it exists and has a role is checked before a launch fails.
        allow(
            "SeeProfiles",
            ["iam:GetInstanceProfile"],
            [stack.format_arn(service="iam", region="", resource="instance-profile", resource_name="*")],
        ),
        allow("MakeProfiles", ["iam:CreateInstanceProfile", "iam:TagInstanceProfile"], [own_profiles], on.requested()),
        allow("FillProfiles", ["iam:AddRoleToInstanceProfile"], [own_profiles]),
        # Only node roles, and only to EC2.
        allow(
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
        allow("LaunchWith", _FLEET, on.ec2(*shared, shared=True)),
        # Only launch templates of this cluster.
        allow("LaunchFromOwnTemplates", _FLEET, on.ec2("launch-template"), on.owned()),
        # New resources must have the cluster's tags, or garbage collection could not find them.
        allow(
            "LaunchTagged",
            _FLEET,
            on.ec2(*LAUNCHED),
            {**on.requested(), "StringLike": {f"aws:RequestTag/{labels.NODEPOOL}": "*"}},
        ),
        allow("MakeTemplates", ["ec2:CreateLaunchTemplate"], on.ec2("launch-template"), on.requested()),
        *_tag(on),
        # The first spot launch of an account creates this service-linked role of EC2.
        allow(
            "AllowFirstSpot",
            ["iam:CreateServiceLinkedRole"],
            [stack.format_arn(service="iam", region="", resource="role", resource_name=_SPOT_ROLE)],
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        ),
        *(_use_keys(on) if on.kms_keys else ()),
    ]


def _tag(on: PermissionScope) -> list[iam.PolicyStatement]:
    return [
        # Only while creating; otherwise any instance could be tagged as the cluster's.
        allow(
            "TagWhileCreating",
            ["ec2:CreateTags"],
            on.ec2(*LAUNCHED, "launch-template"),
            on.requested(**{"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}),
        ),
    ]


def _tag_nodes(on: PermissionScope) -> list[iam.PolicyStatement]:
    # The NodeClaim of an instance is only known after the launch.
    keys = {"ForAllValues:StringEquals": {"aws:TagKeys": ["Name", labels.NODECLAIM_TAG]}}
    return [allow("TagOwnInstances", ["ec2:CreateTags"], on.ec2("instance"), {**on.owned(), **keys})]


def _use_keys(on: PermissionScope) -> list[iam.PolicyStatement]:
    # EC2 encrypts volumes with the permissions of CreateFleet's caller (EBS User Guide, "Requirements for Amazon EBS
    # encryption"). Spot instances of encrypted AMIs or snapshots need a grant for AWSServiceRoleForEC2Spot as well (EC2
    # User Guide, "Service-linked role for Spot Instance requests").
    stack = Stack.of(on.scope)
    through_ec2 = {"kms:ViaService": f"ec2.{stack.region}.{stack.url_suffix}"}
    use = ("Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo")
    return [
        allow("UseVolumeKeys", [f"kms:{action}" for action in use], on.kms_keys, {"StringEquals": through_ec2}),
        # Only grants that let AWS's own services use the key, so that EC2 can attach the volumes later.
        allow(
            "GrantVolumeKeys",
            ["kms:CreateGrant"],
            on.kms_keys,
            {"StringEquals": through_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
    ]


def _on_own_nodes(sid: str, action: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    # Only instances of this cluster that belong to a NodePool, never those of node groups.
    own_nodes = {**on.owned(), "StringLike": {f"aws:ResourceTag/{labels.NODEPOOL}": "*"}}
    return [allow(sid, [action], on.ec2("instance"), own_nodes)]


def _terminate(on: PermissionScope) -> list[iam.PolicyStatement]:
    return _on_own_nodes("TerminateOwned", "ec2:TerminateInstances", on)


def _standby(function: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    # One function stops instances, those that launch start them.
    if function == function_sizes.LIFECYCLE:
        return _on_own_nodes("StopOwned", "ec2:StopInstances", on)
    return _on_own_nodes("StartOwned", "ec2:StartInstances", on)


def _reboot(function: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    # One function reboots instances; disruption only asks for it.
    is_caller = function == function_sizes.LIFECYCLE
    return _on_own_nodes("RebootOwned", "ec2:RebootInstances", on) if is_caller else []


def _delete_templates(on: PermissionScope) -> list[iam.PolicyStatement]:
    return [
        any_resource("ReadTemplates", ["ec2:DescribeLaunchTemplates"], on.in_region),
        # Launch templates of this cluster that are no longer used.
        allow("DeleteOwnTemplates", ["ec2:DeleteLaunchTemplate"], on.ec2("launch-template"), on.owned()),
    ]


def _verify(on: PermissionScope) -> list[iam.PolicyStatement]:
    # To verify spot interruption warnings; instances are read with ReadPlaces.
    return [any_resource("ReadSpotRequests", ["ec2:DescribeSpotInstanceRequests"], on.in_region)]


def _read_status(on: PermissionScope) -> list[iam.PolicyStatement]:
    # Failed status checks and scheduled events of instances; EC2 filters them by neither tag nor resource.
    return [any_resource("ReadInstanceStatus", ["ec2:DescribeInstanceStatus"], on.in_region)]


def refresh_catalog(on: ReadScope) -> list[iam.PolicyStatement]:
    """What the catalog function needs, but to read the catalog."""
    types = (
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeSpotPriceHistory",
    )
    return [
        any_resource("ReadTypes", types, on.in_region),
        any_resource("ReadPrices", ["pricing:GetProducts"]),
        allow("WriteCatalog", ["s3:PutObject"], [on.catalog.arn_for_objects("*")]),
        *(_read_commitments(on) if on.commitments else ()),
    ]


def _read_commitments(on: ReadScope) -> list[iam.PolicyStatement]:
    """The account's Savings Plans and Reserved Instances, and the instances that use them."""
    ec2 = ["ec2:DescribeInstances", "ec2:DescribeReservedInstances"]
    # Savings Plans have one endpoint, in another Region.
    plans = ["savingsplans:DescribeSavingsPlanRates", "savingsplans:DescribeSavingsPlans"]
    return [any_resource("ReadReservedInstances", ec2, on.in_region), any_resource("ReadSavingsPlans", plans)]


def read_catalog(on: ReadScope) -> list[iam.PolicyStatement]:
    """What it takes to read the objects of the catalog's bucket."""
    return [
        allow("ReadCatalog", ["s3:GetObject"], [on.catalog.arn_for_objects("*")]),
        # Without it S3 returns 403 instead of 404 for a catalog that doesn't exist yet.
        allow("SeeCatalogMissing", ["s3:ListBucket"], [on.catalog.bucket_arn]),
    ]


def join_network() -> iam.PolicyStatement:
    """What a function's role needs for a function in a VPC."""
    return any_resource(
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
        return [allow("CountMessages", actions, queues)] if queues else []
    # On these alarms: CloudWatch then answers for alarms of metrics only, not for composite ones (DescribeAlarms).
    alarms = [
        stack.format_arn(
            service="cloudwatch", resource="alarm", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
        )
        for name in on.buffer_alarms
    ]
    return [allow("SeeAlarms", ["cloudwatch:DescribeAlarms"], alarms)] if alarms else []


def _record_sweeps(on: PermissionScope) -> list[iam.PolicyStatement]:
    table = Stack.of(on.scope).format_arn(service="dynamodb", resource="table", resource_name=on.sweeps_table)
    # Of the table that the fleet's clusters share, only the cluster's own row.
    own_row = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [on.cluster]}}
    return [allow("RecordSweeps", ["dynamodb:PutItem"], [table], own_row)]


def _read_zonal_shifts(on: PermissionScope) -> list[iam.PolicyStatement]:
    cluster = {"StringEquals": {"arc-zonal-shift:ResourceIdentifier": on.cluster_arn}}
    return [any_resource("ReadZonalShifts", ["arc-zonal-shift:GetManagedResource"], cluster)]


def _optional(setting: str, function: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    """What a function may do where the deployment asks for it."""
    if setting == "sweeps_table":
        return _record_sweeps(on) if on.sweeps_table else []
    if setting == "standby":
        return _standby(function, on) if on.standby else []
    if setting == "reboot":
        return _reboot(function, on) if on.reboot else []
    if setting == "zonal_shift":
        return _read_zonal_shifts(on) if on.zonal_shift else []
    return scale_node_groups(function, on) if on.node_groups else []


def _publish(function: str, on: PermissionScope) -> iam.PolicyStatement:
    """Hints to other functions; of node groups only notifications."""
    source = hints.RELAY if function == function_sizes.RELAY else hints.FUNCTIONS
    bus = [on.bus.event_bus_arn]
    if function == function_sizes.NODE_GROUPS:
        return allow("PublishNotifications", ["events:PutEvents"], bus, of_source(source, "Node Group *"))
    return allow("PutHints", ["events:PutEvents"], bus, of_source(source))


def _keep_records(function: str, on: PermissionScope) -> iam.PolicyStatement:
    """Unavailable offerings, partial launches, interruption rates, the call budget, wake-ups already sent, decisions.

    The table is never scanned. Only the interruption function adds to what others have counted, and the termination
    function has the decision log only, whose rows it reads and writes one by one.
    """
    actions: tuple[str, ...] = ("BatchWriteItem", "GetItem", "PutItem", "Query")
    if function == function_sizes.INTERRUPTION:
        actions += ("UpdateItem",)
    elif function == function_sizes.TERMINATION:
        actions = ("PutItem", "Query")
    return allow("KeepRecords", [f"dynamodb:{action}" for action in actions], [on.table.table_arn])


_SENDS = {
    "provisioning_queue_url": ("SendToProvisioner", function_sizes.PROVISIONER),
    "termination_queue_url": ("SendToTermination", function_sizes.TERMINATION),
    "disruption_queue_url": ("WakeUpLater", function_sizes.DISRUPTION),
    "node_group_queue_url": ("ContinueDrains", function_sizes.NODE_GROUPS),
}
"""The statement's id, and the function whose queue it is, by setting."""


def sends_to(owner: str, settings: Iterable[str]) -> bool:
    """Whether a function with these settings sends to the queue of function ``owner``."""
    return any(setting in _SENDS and _SENDS[setting][1] == owner for setting in settings)


_WITHOUT_RIGHTS = frozenset(
    {
        *("cluster_name", "node_instance_profile", "planned_pods", "buffer_events", "relay", "webhook_digest"),
        *("commitments", "commitment_share"),  # what the catalog function reads of them is in the catalog's bucket
    }
)
"""Settings that are names or options."""


def _by_setting(setting: str, function: str, on: PermissionScope) -> list[iam.PolicyStatement]:
    """The permissions that follow from a setting: a function that knows a resource may use it."""
    queues = on.queues
    match setting:
        case "event_bus_name":
            allowed = [_publish(function, on)]
        case "table_name":
            allowed = [_keep_records(function, on)]
        case "catalog_bucket":
            allowed = read_catalog(on)
        case _ if setting in _SENDS:
            sid, owner = _SENDS[setting]
            allowed = [allow(sid, ["sqs:SendMessage"], [queues.by_function[owner].queue_arn])]
        case "dead_letter_queue_url":
            # Malformed messages, with the reason.
            allowed = [allow("BuryMalformed", ["sqs:SendMessage"], [queues.dead_letters[function].queue_arn])]
        case "dead_letter_queues":
            arns = [queue.queue_arn for queue in queues.all_dead_letters]
            allowed = [allow("CountDeadLetters", ["sqs:GetQueueAttributes"], arns)]
        case "buffer_queues" | "buffer_alarms":
            allowed = _read_sources(setting, on)
        case "standby" | "reboot" | "zonal_shift" | "node_groups" | "sweeps_table":
            allowed = _optional(setting, function, on)
        case _ if setting in _WITHOUT_RIGHTS:
            allowed = []
        case _:
            raise KeyError(f"setting {setting} of {function}: add its permissions here")
    return allowed


def reach_cluster(on: ReadScope) -> iam.PolicyStatement:
    """The endpoint and its certificate authority; RBAC guards the API itself."""
    return allow("ReachCluster", ["eks:DescribeCluster"], [on.cluster_arn])


def statements(function: str, settings: Iterable[str], on: PermissionScope) -> list[iam.PolicyStatement]:
    """The function's permissions, except for its logs and its own queue.

    Raises:
        KeyError: the permissions of a setting are not defined.
    """
    describe_cluster = [reach_cluster(on)]
    describe_instances = [any_resource("ReadInstances", ["ec2:DescribeInstances"], on.in_region)]
    purposes: dict[str, Callable[[], list[iam.PolicyStatement]]] = {
        function_sizes.PROVISIONER: lambda: [*describe_cluster, *_resolve_node_class(on), *_launch(on)],
        function_sizes.LIFECYCLE: lambda: [
            *describe_cluster,
            *_resolve_node_class(on),
            *_delete_templates(on),
            *_tag_nodes(on),
        ],  # updates statuses of node classes; tags instances; collects garbage
        # It launches replacements first and deletes NodeClaims then, which the termination function handles.
        function_sizes.DISRUPTION: lambda: [*describe_cluster, *_resolve_node_class(on), *_launch(on)],
        function_sizes.TERMINATION: lambda: [*describe_cluster, *describe_instances, *_terminate(on)],
        # It launches replacements and deletes NodeClaims, which the termination function handles.
        function_sizes.INTERRUPTION: lambda: [
            *describe_cluster,
            *_resolve_node_class(on),
            *_launch(on),
            *_verify(on),
            *_read_status(on),
        ],
        function_sizes.CATALOG: lambda: refresh_catalog(on),
        # Its other permissions follow from the queues and alarms that the deployment names.
        function_sizes.BUFFERS: lambda: describe_cluster,
        # It puts hints on the bus, which follows from its settings.
        function_sizes.RELAY: lambda: describe_cluster,
        # It sends to one queue, which follows from its settings.
        function_sizes.WEBHOOK: list,
        # Its other permissions follow from its settings.
        function_sizes.NODE_GROUPS: lambda: [*describe_cluster, *describe_instances, *_verify(on), *_read_status(on)],
    }
    return [*purposes[function](), *(s for setting in settings for s in _by_setting(setting, function, on))]
