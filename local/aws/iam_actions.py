"""The IAM actions, resources and condition keys of a call to AWS.

One call can need many permissions: CreateFleet needs them for each resource that it creates or uses, for tagging, and
for passing the nodes' role. Actions, resource types and keys are those of AWS's service authorization reference. An
operation that isn't listed here is an error, so that no call passes unchecked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.aws import iam_node_group_actions
from local.aws.iam_policies import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from local.aws.iam_context import CallContext, Params, Permission, Tags


class UnknownCallError(LookupError):
    """The permissions of that call are not listed here."""


def requests(service: str, operation: str, params: Params, at: CallContext, *, secure: bool = True) -> list[Request]:
    """All IAM requests that must be allowed for the call.

    Raises:
        UnknownCallError: the operation isn't listed here.
    """
    call = f"{service}:{operation}"
    general = {"aws:RequestedRegion": [at.region], "aws:SecureTransport": [str(secure).lower()]}
    return [
        Request(action=action, resource=resource, context={**general, **context})
        for action, resource, context in _permissions(call, params, at)
    ]


_OF_FLEET = ("instance", "volume")
"""The created resources that CreateFleet itself asks for; of what only the template names, RunInstances alone asks
(service authorization reference, CreateFleet)."""
_SPOT_REQUEST = "spot-instances-request"
_EC2_READS = (
    "AvailabilityZones", "CapacityReservations", "Images", "InstanceStatus", "InstanceTypeOfferings", "InstanceTypes",
    "Instances", "LaunchTemplates", "LaunchTemplateVersions", "PlacementGroups", "ReservedInstances", "SecurityGroups",
    "SpotInstanceRequests",
    "SpotPriceHistory", "Subnets", "Volumes",
)  # fmt: skip


def _permissions(call: str, params: Params, at: CallContext) -> Iterator[Permission]:
    if call in _BY_CALL:
        yield from _BY_CALL[call](params, at)
    elif call in _WITHOUT_RESOURCE:
        yield call, "*", {}
    else:
        raise UnknownCallError(f"{call}: list the permissions of this call in {__name__}")


# --- EC2 ---


def _request_tags(tags: Tags) -> dict[str, list[str]]:
    return {**{f"aws:RequestTag/{key}": [value] for key, value in tags.items()}, "aws:TagKeys": list(tags)}


def _resource_tags(tags: Tags) -> dict[str, list[str]]:
    return {f"aws:ResourceTag/{key}": [value] for key, value in tags.items()}


def _tags_by_type(specifications: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    return {
        specification["ResourceType"]: {
            tag["Key"]: tag["Value"] for tag in specification.get("Tags") or specification.get("Tag") or ()
        }
        for specification in specifications
    }


def _create_fleet(params: Params, at: CallContext) -> Iterator[Permission]:
    spot = params.get("TargetCapacitySpecification", {}).get("DefaultTargetCapacityType") == "spot"
    request_tags = _tags_by_type(params.get("TagSpecifications", ()))
    yield "ec2:CreateFleet", at.arn("ec2", "fleet/*"), _request_tags(request_tags.get("fleet", {}))
    if "fleet" in request_tags:
        yield _tag_on_create("CreateFleet", "fleet", request_tags["fleet"], at)
    for config in params.get("LaunchTemplateConfigs", ()):
        template = config["LaunchTemplateSpecification"]
        id_, data = at.resources.template(template.get("LaunchTemplateId") or template["LaunchTemplateName"])
        if not id_:
            continue  # EC2 answers that it doesn't exist, not that it may not be used
        overrides = config.get("Overrides", ())
        used = {at.arn("ec2", f"subnet/{override['SubnetId']}", account="*") for override in overrides}
        used |= {_image(override["ImageId"], at) for override in overrides if "ImageId" in override}
        yield from _launch(id_, data, request_tags, used, spot=spot, at=at)


def _launch(
    id_: str, data: Params, request_tags: Mapping[str, Tags], used: set[str], *, spot: bool, at: CallContext
) -> Iterator[Permission]:
    """The permissions to run instances from a template: for what it uses, creates and tags, and for its role."""
    template = {"ec2:LaunchTemplate": [at.arn("ec2", f"launch-template/{id_}")]}
    template_tags = _tags_by_type(data.get("TagSpecifications") or ())
    created = {
        type_: {**template_tags.get(type_, {}), **request_tags.get(type_, {})}
        for type_ in ("instance", "volume", "network-interface", *([_SPOT_REQUEST] if spot else []))
    }
    requested = {
        "ec2:CreateFleet": (used, _OF_FLEET),
        # An instant fleet runs instances in its caller's name.
        "ec2:RunInstances": (used | set(_used_resources(data, at)), created),
    }
    for action, (resources, types) in requested.items():
        yield action, at.arn("ec2", f"launch-template/{id_}"), _resource_tags(at.resources.tags(id_))
        for resource in sorted(resources):
            yield action, resource, dict(template)
        for type_ in types:
            own = template if type_ != _SPOT_REQUEST else {}  # of spot requests, IAM doesn't know the template
            yield action, at.arn("ec2", f"{type_}/*"), {**own, **_request_tags(created[type_])}
    for type_, tags in created.items():
        if tags:
            yield _tag_on_create("RunInstances", type_, tags, at)
    profile = data.get("IamInstanceProfile") or {}
    if profile:
        yield from _pass_role(at.resources.role_of(profile.get("Name") or str(profile["Arn"]).rsplit("/", 1)[-1]))


def _used_resources(data: Params, at: CallContext) -> Iterator[str]:
    """The ARNs of the existing resources that launch template data names."""
    if image := data.get("ImageId"):
        yield _image(image, at)
    for group in _security_groups(data):
        yield at.arn("ec2", f"security-group/{group}")
    for device in data.get("BlockDeviceMappings") or ():
        if snapshot := (device.get("Ebs") or {}).get("SnapshotId"):
            yield at.arn("ec2", f"snapshot/{snapshot}", account="")
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    if "CapacityReservationId" in target:
        yield at.arn("ec2", f"capacity-reservation/{target['CapacityReservationId']}")
    if placement_group := (data.get("Placement") or {}).get("GroupName"):
        yield at.arn("ec2", f"placement-group/{placement_group}")


def _security_groups(data: Params) -> Iterator[str]:
    yield from data.get("SecurityGroupIds") or ()
    for interface in data.get("NetworkInterfaces") or ():
        yield from interface.get("Groups") or ()


def _image(id_: str, at: CallContext) -> str:
    return at.arn("ec2", f"image/{id_}", account="")


def _tag_on_create(creating: str, type_: str, tags: Tags, at: CallContext) -> Permission:
    return "ec2:CreateTags", at.arn("ec2", f"{type_}/*"), {"ec2:CreateAction": [creating], **_request_tags(tags)}


def _run_instances(params: Params, at: CallContext) -> Iterator[Permission]:
    request_tags = _tags_by_type(params.get("TagSpecifications", ()))
    for type_ in ("instance", "volume", "network-interface"):
        yield "ec2:RunInstances", at.arn("ec2", f"{type_}/*"), _request_tags(request_tags.get(type_, {}))
    for resource in _used_resources(params, at):
        yield "ec2:RunInstances", resource, {}
    for type_, tags in request_tags.items():
        yield _tag_on_create("RunInstances", type_, tags, at)


def _create_template(params: Params, at: CallContext) -> Iterator[Permission]:
    tags = _tags_by_type(params.get("TagSpecifications", ())).get("launch-template", {})
    yield "ec2:CreateLaunchTemplate", at.arn("ec2", "launch-template/*"), _request_tags(tags)
    if tags:
        yield _tag_on_create("CreateLaunchTemplate", "launch-template", tags, at)


def _delete_template(params: Params, at: CallContext) -> Iterator[Permission]:
    id_, _ = at.resources.template(params.get("LaunchTemplateId") or params["LaunchTemplateName"])
    if not id_:
        return
    yield "ec2:DeleteLaunchTemplate", at.arn("ec2", f"launch-template/{id_}"), _resource_tags(at.resources.tags(id_))


def _on_instances(action: str) -> Callable[[Params, CallContext], Iterator[Permission]]:
    def permissions(params: Params, at: CallContext) -> Iterator[Permission]:
        for id_ in params["InstanceIds"]:
            yield action, at.arn("ec2", f"instance/{id_}"), _resource_tags(at.resources.tags(id_))

    return permissions


_TYPE_OF_ID_PREFIX = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "lt": "launch-template",
    "subnet": "subnet",
    "sg": "security-group",
    "fleet": "fleet",
}


def _retag(action: str) -> Callable[[Params, CallContext], Iterator[Permission]]:
    def permissions(params: Params, at: CallContext) -> Iterator[Permission]:
        tags = {tag["Key"]: tag.get("Value", "") for tag in params["Tags"]}
        for id_ in params["Resources"]:
            condition_keys = {**_resource_tags(at.resources.tags(id_)), **_request_tags(tags)}
            yield action, at.arn("ec2", f"{_TYPE_OF_ID_PREFIX[id_.partition('-')[0]]}/{id_}"), condition_keys

    return permissions


# --- IAM ---


def _pass_role(arn: str) -> Iterator[Permission]:
    yield "iam:PassRole", arn, {"iam:PassedToService": ["ec2.amazonaws.com"]}


def _profile(params: Params, at: CallContext) -> str:
    return at.arn("iam", f"instance-profile/{params['InstanceProfileName']}", region="")


def _create_profile(params: Params, at: CallContext) -> Iterator[Permission]:
    tags = {tag["Key"]: tag["Value"] for tag in params.get("Tags", ())}
    yield "iam:CreateInstanceProfile", _profile(params, at), _request_tags(tags)
    if tags:
        yield "iam:TagInstanceProfile", _profile(params, at), _request_tags(tags)


def _add_role_to_profile(params: Params, at: CallContext) -> Iterator[Permission]:
    yield "iam:AddRoleToInstanceProfile", _profile(params, at), {}
    yield from _pass_role(at.role(params["RoleName"]))


# --- Calls on one resource, by name ---


def _on(
    action: str, resource: Callable[[Params, CallContext], str]
) -> Callable[[Params, CallContext], Iterator[Permission]]:
    def permissions(params: Params, at: CallContext) -> Iterator[Permission]:
        yield action, resource(params, at), {}

    return permissions


def _queue(params: Params, at: CallContext) -> str:
    return at.arn("sqs", params.get("QueueName") or params["QueueUrl"].rsplit("/", 1)[-1])


def _table(params: Params, at: CallContext) -> str:
    return at.arn("dynamodb", f"table/{params['TableName']}")


def _tables(action: str) -> Callable[[Params, CallContext], Iterator[Permission]]:
    def permissions(params: Params, at: CallContext) -> Iterator[Permission]:
        for table in params["RequestItems"]:
            yield action, _table({"TableName": table}, at), {}

    return permissions


def _object(params: Params, at: CallContext) -> str:
    return at.arn("s3", f"{params['Bucket']}/{params['Key']}", region="", account="")


def _get_object(params: Params, at: CallContext) -> Iterator[Permission]:
    yield "s3:GetObject", _object(params, at), {}
    if not at.resources.object_exists(params["Bucket"], params["Key"]):
        yield (
            "s3:ListBucket",
            _bucket(params, at),
            {},
        )  # without this permission, S3 does not tell that an object is missing


def _bucket(params: Params, at: CallContext) -> str:
    return at.arn("s3", params["Bucket"], region="", account="")


def _role(params: Params, at: CallContext) -> str:
    return at.role(params["RoleName"])


def _cluster(params: Params, at: CallContext) -> str:
    return at.arn("eks", f"cluster/{params['name']}")


def _zonal_shift(action: str) -> Callable[[Params, CallContext], Iterator[Permission]]:
    def permissions(params: Params, _at: CallContext) -> Iterator[Permission]:
        yield action, "*", {"arc-zonal-shift:ResourceIdentifier": [params["resourceIdentifier"]]}

    return permissions


def _parameters(action: str) -> Callable[[Params, CallContext], Iterator[Permission]]:
    def permissions(params: Params, at: CallContext) -> Iterator[Permission]:
        for name in params.get("Names") or [params["Name"]]:
            public = name.startswith("/aws/")
            yield action, at.arn("ssm", f"parameter/{name.lstrip('/')}", account="" if public else None), {}

    return permissions


def _describe_alarms(params: Params, at: CallContext) -> Iterator[Permission]:
    for name in params.get("AlarmNames") or ["*"]:
        yield "cloudwatch:DescribeAlarms", at.arn("cloudwatch", f"alarm:{name}"), {}


def _put_events(params: Params, at: CallContext) -> Iterator[Permission]:
    for entry in params["Entries"]:
        bus = entry.get("EventBusName") or "default"
        context = {"events:source": [entry["Source"]], "events:detail-type": [entry["DetailType"]]}
        yield "events:PutEvents", bus if bus.startswith("arn:") else at.arn("events", f"event-bus/{bus}"), context


_WITHOUT_RESOURCE = frozenset(
    {*(f"ec2:Describe{resources}" for resources in _EC2_READS), "pricing:GetProducts"}
    | {"savingsplans:DescribeSavingsPlans", "savingsplans:DescribeSavingsPlanRates"}
    | iam_node_group_actions.WITHOUT_RESOURCE
)
"""Calls without resource-level permissions."""

_BY_CALL: Mapping[str, Callable[[Params, CallContext], Iterator[Permission]]] = {
    "ec2:CreateFleet": _create_fleet,
    "ec2:RunInstances": _run_instances,
    "ec2:CreateLaunchTemplate": _create_template,
    "ec2:DeleteLaunchTemplate": _delete_template,
    "ec2:TerminateInstances": _on_instances("ec2:TerminateInstances"),
    "ec2:RebootInstances": _on_instances("ec2:RebootInstances"),
    "ec2:StopInstances": _on_instances("ec2:StopInstances"),
    "ec2:StartInstances": _on_instances("ec2:StartInstances"),
    "ec2:CreateTags": _retag("ec2:CreateTags"),
    "ec2:DeleteTags": _retag("ec2:DeleteTags"),
    "iam:GetInstanceProfile": _on("iam:GetInstanceProfile", _profile),
    "iam:ListInstanceProfilesForRole": _on("iam:ListInstanceProfilesForRole", _role),
    "iam:CreateInstanceProfile": _create_profile,
    "iam:AddRoleToInstanceProfile": _add_role_to_profile,
    "iam:CreateRole": _on("iam:CreateRole", _role),
    "iam:AttachRolePolicy": _on("iam:AttachRolePolicy", _role),
    "iam:PutRolePolicy": _on("iam:PutRolePolicy", _role),
    "ssm:GetParameter": _parameters("ssm:GetParameter"),
    "ssm:GetParameters": _parameters("ssm:GetParameters"),
    "ssm:PutParameter": _parameters("ssm:PutParameter"),
    "eks:DescribeCluster": _on("eks:DescribeCluster", _cluster),
    "arc-zonal-shift:GetManagedResource": _zonal_shift("arc-zonal-shift:GetManagedResource"),
    "eks:DeleteCluster": _on("eks:DeleteCluster", _cluster),
    "sqs:SendMessage": _on("sqs:SendMessage", _queue),
    "sqs:SendMessageBatch": _on("sqs:SendMessage", _queue),
    "sqs:ReceiveMessage": _on("sqs:ReceiveMessage", _queue),
    "sqs:DeleteMessage": _on("sqs:DeleteMessage", _queue),
    "sqs:ChangeMessageVisibility": _on("sqs:ChangeMessageVisibility", _queue),
    "sqs:GetQueueUrl": _on("sqs:GetQueueUrl", _queue),
    "sqs:ListQueues": _on("sqs:ListQueues", lambda _params, at: at.arn("sqs", "*")),
    "sqs:GetQueueAttributes": _on("sqs:GetQueueAttributes", _queue),
    "sqs:PurgeQueue": _on("sqs:PurgeQueue", _queue),
    "dynamodb:GetItem": _on("dynamodb:GetItem", _table),
    "dynamodb:PutItem": _on("dynamodb:PutItem", _table),
    "dynamodb:UpdateItem": _on("dynamodb:UpdateItem", _table),
    "dynamodb:DeleteItem": _on("dynamodb:DeleteItem", _table),
    "dynamodb:Query": _on("dynamodb:Query", _table),
    "dynamodb:Scan": _on("dynamodb:Scan", _table),
    "dynamodb:DeleteTable": _on("dynamodb:DeleteTable", _table),
    "dynamodb:BatchGetItem": _tables("dynamodb:BatchGetItem"),
    "dynamodb:BatchWriteItem": _tables("dynamodb:BatchWriteItem"),
    "s3:GetObject": _get_object,
    "s3:HeadObject": _get_object,
    "s3:PutObject": _on("s3:PutObject", _object),
    "s3:DeleteObject": _on("s3:DeleteObject", _object),
    "s3:ListObjectsV2": _on("s3:ListBucket", _bucket),
    "events:PutEvents": _put_events,
    "cloudwatch:DescribeAlarms": _describe_alarms,
    **iam_node_group_actions.BY_CALL,
}
