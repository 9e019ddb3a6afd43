"""What a call to AWS asks of IAM: which actions, on which resources, with which condition keys.

One call can ask many things: CreateFleet asks for each kind of thing that it makes or uses, for tagging what it tags,
and for passing the nodes' role. Actions, resource types and keys are those of AWS's service authorization reference.
An operation that isn't listed here is an error: what nobody thought about is not let through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from local.aws.iam_policies import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Params = Mapping[str, Any]
    Tags = Mapping[str, str]


class Facts(Protocol):
    """What IAM knows of resources that a call names."""

    def tags(self, resource_id: str) -> Tags:
        """The tags of an EC2 resource."""

    def template(self, named: str) -> tuple[str, Mapping[str, Any]]:
        """The id and the newest data of a launch template by its name or id; ("", {}) if there is none."""

    def role_of(self, profile: str) -> str:
        """The ARN of the role in an instance profile, by the profile's name; "" if there is none."""

    def stored(self, bucket: str, key: str) -> bool:
        """Whether there is such an object."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where calls are made: what ARNs are made of, and the facts."""

    account: str
    region: str
    facts: Facts
    partition: str = "aws"

    def arn(self, service: str, resource: str, *, region: str | None = None, account: str | None = None) -> str:
        """An ARN; Region and account are the caller's unless said."""
        where = self.region if region is None else region
        whose = self.account if account is None else account
        return f"arn:{self.partition}:{service}:{where}:{whose}:{resource}"

    def role(self, name: str) -> str:
        """A role's ARN."""
        return self.arn("iam", f"role/{name}", region="")


class UnknownCallError(LookupError):
    """Nobody has said here what that call asks of IAM."""


def requests(service: str, operation: str, params: Params, at: Account, *, secure: bool = True) -> list[Request]:
    """Everything that must be allowed for the call to be carried out.

    Raises:
        UnknownCallError: the operation isn't listed here.
    """
    called = f"{service}:{operation}"
    general = {"aws:RequestedRegion": [at.region], "aws:SecureTransport": [str(secure).lower()]}
    return [
        Request(action=action, resource=resource, context={**general, **context})
        for action, resource, context in _ask(called, params, at)
    ]


Asked = tuple[str, str, dict[str, list[str]]]
_FLEET = ("ec2:CreateFleet", "ec2:RunInstances")  # an instant fleet runs instances in its caller's name
_EC2_READS = (
    "AvailabilityZones", "CapacityReservations", "Images", "InstanceTypeOfferings", "InstanceTypes", "Instances",
    "LaunchTemplates", "PlacementGroups", "SecurityGroups", "SpotInstanceRequests", "SpotPriceHistory", "Subnets",
    "Volumes",
)  # fmt: skip


def _ask(called: str, params: Params, at: Account) -> Iterator[Asked]:
    if called in _BY_CALL:
        yield from _BY_CALL[called](params, at)
    elif called in _EVERYWHERE:
        yield called, "*", {}
    else:
        raise UnknownCallError(f"{called}: say in {__name__} what this call asks of IAM")


# --- EC2 ---


def _requested(tags: Tags) -> dict[str, list[str]]:
    return {**{f"aws:RequestTag/{key}": [value] for key, value in tags.items()}, "aws:TagKeys": list(tags)}


def _present(tags: Tags) -> dict[str, list[str]]:
    return {f"aws:ResourceTag/{key}": [value] for key, value in tags.items()}


def _by_type(specifications: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    return {
        one["ResourceType"]: {tag["Key"]: tag["Value"] for tag in one.get("Tags") or one.get("Tag") or ()}
        for one in specifications
    }


def _create_fleet(params: Params, at: Account) -> Iterator[Asked]:
    spot = params.get("TargetCapacitySpecification", {}).get("DefaultTargetCapacityType") == "spot"
    given = _by_type(params.get("TagSpecifications", ()))
    yield _FLEET[0], at.arn("ec2", "fleet/*"), _requested(given.get("fleet", {}))
    if "fleet" in given:
        yield _tag_while("CreateFleet", "fleet", given["fleet"], at)
    for config in params.get("LaunchTemplateConfigs", ()):
        named = config["LaunchTemplateSpecification"]
        id_, data = at.facts.template(named.get("LaunchTemplateId") or named["LaunchTemplateName"])
        used = {at.arn("ec2", f"subnet/{one['SubnetId']}", account="*") for one in config.get("Overrides", ())}
        used |= {_image(one["ImageId"], at) for one in config.get("Overrides", ()) if "ImageId" in one}
        yield from _launch(id_, data, given, used, spot=spot, at=at)


def _launch(
    id_: str, data: Params, given: Mapping[str, Tags], used: set[str], *, spot: bool, at: Account
) -> Iterator[Asked]:
    """What running instances from a template asks: for what it uses, makes and tags, and for its role."""
    template = {"ec2:LaunchTemplate": [at.arn("ec2", f"launch-template/{id_}")]}
    tagged = _by_type(data.get("TagSpecifications") or ())
    made = {
        type_: {**tagged.get(type_, {}), **given.get(type_, {})}
        for type_ in ("instance", "volume", "network-interface", *(["spot-instances-request"] if spot else []))
    }
    for action in _FLEET:
        yield action, at.arn("ec2", f"launch-template/{id_}"), _present(at.facts.tags(id_))
        for resource in sorted(used | set(_used(data, at))):
            yield action, resource, dict(template)
        for type_, tags in made.items():
            yield action, at.arn("ec2", f"{type_}/*"), {**template, **_requested(tags)}
    for type_, tags in made.items():
        if tags:
            yield _tag_while("RunInstances", type_, tags, at)
    profile = data.get("IamInstanceProfile") or {}
    if profile:
        yield from _pass_role(at.facts.role_of(profile.get("Name") or str(profile["Arn"]).rsplit("/", 1)[-1]))


def _used(data: Params, at: Account) -> Iterator[str]:
    if image := data.get("ImageId"):
        yield _image(image, at)
    interfaces = data.get("NetworkInterfaces") or ()
    for group in [*(data.get("SecurityGroupIds") or ()), *(g for one in interfaces for g in one.get("Groups") or ())]:
        yield at.arn("ec2", f"security-group/{group}")
    for device in data.get("BlockDeviceMappings") or ():
        if snapshot := (device.get("Ebs") or {}).get("SnapshotId"):
            yield at.arn("ec2", f"snapshot/{snapshot}", account="")
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    if "CapacityReservationId" in target:
        yield at.arn("ec2", f"capacity-reservation/{target['CapacityReservationId']}")
    if group := (data.get("Placement") or {}).get("GroupName"):
        yield at.arn("ec2", f"placement-group/{group}")


def _image(id_: str, at: Account) -> str:
    return at.arn("ec2", f"image/{id_}", account="")


def _tag_while(creating: str, type_: str, tags: Tags, at: Account) -> Asked:
    return "ec2:CreateTags", at.arn("ec2", f"{type_}/*"), {"ec2:CreateAction": [creating], **_requested(tags)}


def _run_instances(params: Params, at: Account) -> Iterator[Asked]:
    given = _by_type(params.get("TagSpecifications", ()))
    for type_ in ("instance", "volume", "network-interface"):
        yield "ec2:RunInstances", at.arn("ec2", f"{type_}/*"), _requested(given.get(type_, {}))
    for resource in _used(params, at):
        yield "ec2:RunInstances", resource, {}
    for type_, tags in given.items():
        yield _tag_while("RunInstances", type_, tags, at)


def _create_template(params: Params, at: Account) -> Iterator[Asked]:
    tags = _by_type(params.get("TagSpecifications", ())).get("launch-template", {})
    yield "ec2:CreateLaunchTemplate", at.arn("ec2", "launch-template/*"), _requested(tags)
    if tags:
        yield _tag_while("CreateLaunchTemplate", "launch-template", tags, at)


def _delete_template(params: Params, at: Account) -> Iterator[Asked]:
    id_, _ = at.facts.template(params.get("LaunchTemplateId") or params["LaunchTemplateName"])
    yield "ec2:DeleteLaunchTemplate", at.arn("ec2", f"launch-template/{id_}"), _present(at.facts.tags(id_))


def _on_instances(action: str) -> Callable[[Params, Account], Iterator[Asked]]:
    def ask(params: Params, at: Account) -> Iterator[Asked]:
        for id_ in params["InstanceIds"]:
            yield action, at.arn("ec2", f"instance/{id_}"), _present(at.facts.tags(id_))

    return ask


_TYPES = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "lt": "launch-template",
    "subnet": "subnet",
    "sg": "security-group",
    "fleet": "fleet",
}


def _retag(action: str) -> Callable[[Params, Account], Iterator[Asked]]:
    def ask(params: Params, at: Account) -> Iterator[Asked]:
        tags = {tag["Key"]: tag.get("Value", "") for tag in params["Tags"]}
        for id_ in params["Resources"]:
            about = {**_present(at.facts.tags(id_)), **_requested(tags)}
            yield action, at.arn("ec2", f"{_TYPES[id_.partition('-')[0]]}/{id_}"), about

    return ask


# --- IAM ---


def _pass_role(arn: str) -> Iterator[Asked]:
    yield "iam:PassRole", arn, {"iam:PassedToService": ["ec2.amazonaws.com"]}


def _profile(params: Params, at: Account) -> str:
    return at.arn("iam", f"instance-profile/{params['InstanceProfileName']}", region="")


def _create_profile(params: Params, at: Account) -> Iterator[Asked]:
    tags = {tag["Key"]: tag["Value"] for tag in params.get("Tags", ())}
    yield "iam:CreateInstanceProfile", _profile(params, at), _requested(tags)
    if tags:
        yield "iam:TagInstanceProfile", _profile(params, at), _requested(tags)


def _fill_profile(params: Params, at: Account) -> Iterator[Asked]:
    yield "iam:AddRoleToInstanceProfile", _profile(params, at), {}
    yield from _pass_role(at.role(params["RoleName"]))


# --- everything else: one resource each, by name ---


def _on(action: str, resource: Callable[[Params, Account], str]) -> Callable[[Params, Account], Iterator[Asked]]:
    def ask(params: Params, at: Account) -> Iterator[Asked]:
        yield action, resource(params, at), {}

    return ask


def _queue(params: Params, at: Account) -> str:
    return at.arn("sqs", params.get("QueueName") or params["QueueUrl"].rsplit("/", 1)[-1])


def _table(params: Params, at: Account) -> str:
    return at.arn("dynamodb", f"table/{params['TableName']}")


def _tables(action: str) -> Callable[[Params, Account], Iterator[Asked]]:
    def ask(params: Params, at: Account) -> Iterator[Asked]:
        for table in params["RequestItems"]:
            yield action, _table({"TableName": table}, at), {}

    return ask


def _object(params: Params, at: Account) -> str:
    return at.arn("s3", f"{params['Bucket']}/{params['Key']}", region="", account="")


def _get_object(params: Params, at: Account) -> Iterator[Asked]:
    yield "s3:GetObject", _object(params, at), {}
    if not at.facts.stored(params["Bucket"], params["Key"]):
        yield "s3:ListBucket", _bucket(params, at), {}  # who may not list is not told what is missing


def _bucket(params: Params, at: Account) -> str:
    return at.arn("s3", params["Bucket"], region="", account="")


def _role(params: Params, at: Account) -> str:
    return at.role(params["RoleName"])


def _cluster(params: Params, at: Account) -> str:
    return at.arn("eks", f"cluster/{params['name']}")


def _parameters(action: str) -> Callable[[Params, Account], Iterator[Asked]]:
    def ask(params: Params, at: Account) -> Iterator[Asked]:
        for name in params.get("Names") or [params["Name"]]:
            public = name.startswith("/aws/")
            yield action, at.arn("ssm", f"parameter/{name.lstrip('/')}", account="" if public else None), {}

    return ask


def _put_events(params: Params, at: Account) -> Iterator[Asked]:
    for entry in params["Entries"]:
        bus = entry.get("EventBusName") or "default"
        context = {"events:source": [entry["Source"]], "events:detail-type": [entry["DetailType"]]}
        yield "events:PutEvents", bus if bus.startswith("arn:") else at.arn("events", f"event-bus/{bus}"), context


_EVERYWHERE = frozenset({*(f"ec2:Describe{what}" for what in _EC2_READS), "pricing:GetProducts"})
"""Calls that know no resource."""

_BY_CALL: Mapping[str, Callable[[Params, Account], Iterator[Asked]]] = {
    "ec2:CreateFleet": _create_fleet,
    "ec2:RunInstances": _run_instances,
    "ec2:CreateLaunchTemplate": _create_template,
    "ec2:DeleteLaunchTemplate": _delete_template,
    "ec2:TerminateInstances": _on_instances("ec2:TerminateInstances"),
    "ec2:StopInstances": _on_instances("ec2:StopInstances"),
    "ec2:CreateTags": _retag("ec2:CreateTags"),
    "ec2:DeleteTags": _retag("ec2:DeleteTags"),
    "iam:GetInstanceProfile": _on("iam:GetInstanceProfile", _profile),
    "iam:ListInstanceProfilesForRole": _on("iam:ListInstanceProfilesForRole", _role),
    "iam:CreateInstanceProfile": _create_profile,
    "iam:AddRoleToInstanceProfile": _fill_profile,
    "iam:CreateRole": _on("iam:CreateRole", _role),
    "iam:AttachRolePolicy": _on("iam:AttachRolePolicy", _role),
    "iam:PutRolePolicy": _on("iam:PutRolePolicy", _role),
    "ssm:GetParameter": _parameters("ssm:GetParameter"),
    "ssm:GetParameters": _parameters("ssm:GetParameters"),
    "ssm:PutParameter": _parameters("ssm:PutParameter"),
    "eks:DescribeCluster": _on("eks:DescribeCluster", _cluster),
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
}
