"""AWS's limits on a template's resources: names, policies, descriptions and environments, checked after synthesis.

CloudFormation finds a policy that is too large only while it deploys, and rolls the stack back. References are resolved
to values of the length that they have in AWS, so that sizes are those of the deployed resources. Limits are from the
"Service quotas" pages of each service and from the resource types' reference; IAM counts a policy's characters without
white space.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.json_types import Json

ROLE_INLINE_CHARACTERS = 10_240
TRUST_POLICY_CHARACTERS = 2_048
QUEUE_POLICY_BYTES = 8_192
QUEUE_POLICY_STATEMENTS = 20
QUEUE_POLICY_CONDITIONS = 10
QUEUE_POLICY_PRINCIPALS = 50
BUCKET_POLICY_BYTES = 20 * 1024
ENVIRONMENT_BYTES = 4_096
MESSAGE_GROUP_CHARACTERS = 128
EVENT_PATTERN_CHARACTERS = 2_048
TEMPLATE_BYTES = 1_000_000
TEMPLATE_RESOURCES = 500
TEMPLATE_OUTPUTS = 200
TEMPLATE_DESCRIPTION_BYTES = 1_024

_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")
_TEXTS: Mapping[tuple[str, str], re.Pattern[str]] = {
    ("AWS::CloudWatch::Alarm", "AlarmDescription"): re.compile(r".{0,1024}", re.DOTALL),
    ("AWS::CloudWatch::Alarm", "AlarmName"): re.compile(r"[ -~]{1,255}"),
    ("AWS::CloudWatch::Dashboard", "DashboardName"): re.compile(r"[A-Za-z0-9_-]{1,255}"),
    ("AWS::Events::EventBus", "Description"): re.compile(r".{0,512}", re.DOTALL),
    ("AWS::Events::EventBus", "Name"): re.compile(r"[/.\-_A-Za-z0-9]{1,256}"),
    ("AWS::Events::Rule", "Description"): re.compile(r".{0,512}", re.DOTALL),
    ("AWS::Events::Rule", "Name"): re.compile(r"[.\-_A-Za-z0-9]{1,64}"),
    ("AWS::IAM::Role", "Description"): re.compile(r"[ -~]{0,1000}"),
    ("AWS::IAM::Role", "RoleName"): re.compile(r"[\w+=,.@-]{1,64}"),
    ("AWS::Lambda::Function", "Description"): re.compile(r".{0,256}", re.DOTALL),
    ("AWS::Lambda::Function", "FunctionName"): re.compile(r"[A-Za-z0-9_-]{1,64}"),
    ("AWS::S3::Bucket", "BucketName"): re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"),
    ("AWS::SQS::Queue", "QueueName"): re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo"),
}
"""The values that AWS accepts, by resource type and property."""

_GENERATED_LENGTH = {
    "AWS::DynamoDB::Table": 255,
    "AWS::EC2::SecurityGroup": 255,
    "AWS::IAM::InstanceProfile": 128,
    "AWS::Lambda::Function": 64,
    "AWS::Logs::LogGroup": 512,
    "AWS::S3::Bucket": 63,
    "AWS::SQS::Queue": 80,
}
"""The longest name that CloudFormation generates, by resource type; 64 for others, such as roles and rules."""
_NAMES = ("QueueName", "FunctionName", "RoleName", "BucketName", "TableName", "DashboardName", "Name")


class LimitError(ValueError):
    """A template that AWS would reject; the message has a line for each limit that it exceeds."""


class Place(Struct, kw_only=True):
    """Where a template is deployed. The defaults are as long as any: an unknown account, Region and partition."""

    account: str = "123456789012"
    region: str = "ap-southeast-2"
    partition: str = "aws-us-gov"

    @staticmethod
    def of(region: str | None, account: str | None) -> Place:
        """The place of a Region; without one, the one with the longest names."""
        if not region:
            return Place(account=account or "123456789012")
        return Place(account=account or "123456789012", region=region, partition=partition(region))


def partition(region: str) -> str:
    """The partition of a Region: aws, aws-cn or aws-us-gov."""
    for prefix, name in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov")):
        if region.startswith(prefix):
            return name
    return "aws"


class Template(Struct, kw_only=True):
    """A template with its values as they are in AWS."""

    name: str
    body: Mapping[str, Any]
    place: Place = Place()

    def value(self, value: Json) -> Json:
        """The value with resolved references; a generated name is filled up to the longest that it can have."""
        resolved = value
        match value:
            case {"Ref": str(name)}:
                resolved = self._ref(name)
            case {"Fn::GetAtt": [str(name), str(attribute)]}:
                resolved = self._attribute(name, attribute)
            case {"Fn::Join": [str(separator), list(parts)]}:
                resolved = separator.join(str(self.value(part)) for part in parts)
            case {"Fn::Sub": str(text)}:
                resolved = re.sub(r"\$\{([^}]+)\}", lambda match: str(self._ref(match[1])), text)
            case dict():
                resolved = {key: self.value(element) for key, element in value.items()}
            case list():
                resolved = [self.value(element) for element in value]
        return resolved

    def _ref(self, name: str) -> object:
        pseudo = {
            "AWS::AccountId": self.place.account,
            "AWS::Partition": self.place.partition,
            "AWS::Region": self.place.region,
            "AWS::StackName": self.name,
            "AWS::URLSuffix": "amazonaws.com.cn" if self.place.partition == "aws-cn" else "amazonaws.com",
        }
        if name in pseudo:
            return pseudo[name]
        if name not in self.body["Resources"]:
            return name  # a parameter
        if self.body["Resources"][name]["Type"] == "AWS::SQS::Queue":
            return f"https://sqs.{self.place.region}.{pseudo['AWS::URLSuffix']}/{self.place.account}/{self._name(name)}"
        return self._name(name)

    def _name(self, logical_id: str) -> str:
        resource = self.body["Resources"][logical_id]
        properties = resource.get("Properties", {})
        for key in _NAMES:
            if key in properties:
                return str(self.value(properties[key]))
        generated = f"{self.name}-{logical_id}-"
        return generated.ljust(255, "X")[: _GENERATED_LENGTH.get(resource["Type"], 64)]

    def _attribute(self, logical_id: str, attribute: str) -> str:
        if attribute != "Arn":
            return self._name(logical_id)
        kind = self.body["Resources"][logical_id]["Type"]
        name, place = self._name(logical_id), self.place
        regional = f"{place.region}:{place.account}"
        rest = {
            "AWS::DynamoDB::Table": f"dynamodb:{regional}:table/{name}",
            "AWS::Events::EventBus": f"events:{regional}:event-bus/{name}",
            "AWS::Events::Rule": f"events:{regional}:rule/{name}",
            "AWS::IAM::Role": f"iam::{place.account}:role/{name}",
            "AWS::Lambda::Function": f"lambda:{regional}:function:{name}",
            "AWS::Logs::LogGroup": f"logs:{regional}:log-group:{name}:*",
            "AWS::S3::Bucket": f"s3:::{name}",
            "AWS::SQS::Queue": f"sqs:{regional}:{name}",
        }.get(kind, f"service:{regional}:{name}")
        return f"arn:{place.partition}:{rest}"


def check(template: Template) -> None:
    """Check a template against all limits.

    Raises:
        LimitError: it exceeds some.
    """
    exceeded = list(violations(template))
    if exceeded:
        raise LimitError("\n".join(f"{template.name}: {line}" for line in exceeded))


def violations(template: Template) -> Iterator[str]:
    """Each limit that the template exceeds: the resource, the value, and what is allowed."""
    yield from _template_violations(template)
    for logical_id, resource in template.body["Resources"].items():
        kind, properties = resource["Type"], template.value(resource.get("Properties", {}))
        for key, value in properties.items():
            allowed = _TEXTS.get((kind, key))
            if allowed is not None and not allowed.fullmatch(str(value)):
                length = len(str(value))
                yield f'{logical_id}: {key} "{value}" has {length} characters, and must match {allowed.pattern}'
        match kind:
            case "AWS::SQS::QueuePolicy":
                yield from _queue_policy_violations(logical_id, properties["PolicyDocument"])
            case "AWS::S3::BucketPolicy":
                yield from _over(logical_id, "policy bytes", _bytes(properties["PolicyDocument"]), BUCKET_POLICY_BYTES)
            case "AWS::IAM::Role":
                trust = _bytes(properties["AssumeRolePolicyDocument"])
                yield from _over(logical_id, "characters of its trust policy", trust, TRUST_POLICY_CHARACTERS)
            case "AWS::Lambda::Function":
                variables = properties.get("Environment", {}).get("Variables", {})
                yield from _over(logical_id, "bytes of environment", _bytes(variables), ENVIRONMENT_BYTES)
            case "AWS::Events::Rule":
                groups = [t["SqsParameters"]["MessageGroupId"] for t in properties["Targets"] if "SqsParameters" in t]
                longest = max((len(group) for group in groups), default=0)
                yield from _over(logical_id, "characters of a message group", longest, MESSAGE_GROUP_CHARACTERS)
                pattern = _bytes(properties.get("EventPattern", {}))
                yield from _over(logical_id, "characters of an event pattern", pattern, EVENT_PATTERN_CHARACTERS)
    for role, characters in inline_policy_sizes(template).items():
        yield from _over(role, "characters of inline policies", characters, ROLE_INLINE_CHARACTERS)


def inline_policy_sizes(template: Template) -> dict[str, int]:
    """The characters of each role's inline policies, by its logical id."""
    sizes: dict[str, int] = {}
    for logical_id, resource in template.body["Resources"].items():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::IAM::Policy":
            for role in properties["Roles"]:
                size = _bytes(template.value(properties["PolicyDocument"]))
                sizes[role["Ref"]] = sizes.get(role["Ref"], 0) + size
        elif resource["Type"] == "AWS::IAM::Role":
            for policy in properties.get("Policies", ()):
                sizes[logical_id] = sizes.get(logical_id, 0) + _bytes(template.value(policy["PolicyDocument"]))
    return sizes


def _template_violations(template: Template) -> Iterator[str]:
    body = template.body
    if not _STACK_NAME.fullmatch(template.name):
        yield f"the stack's name has {len(template.name)} characters, and must match {_STACK_NAME.pattern}"
    yield from _over("template", "bytes", len(json.dumps(body)), TEMPLATE_BYTES)
    yield from _over("template", "resources", len(body["Resources"]), TEMPLATE_RESOURCES)
    yield from _over("template", "outputs", len(body.get("Outputs", {})), TEMPLATE_OUTPUTS)
    description = len(str(body.get("Description", "")).encode())
    yield from _over("template", "bytes of description", description, TEMPLATE_DESCRIPTION_BYTES)


def _queue_policy_violations(logical_id: str, policy: Mapping[str, Any]) -> Iterator[str]:
    statements = policy["Statement"]
    conditions = sum(len(keys) for s in statements for keys in s.get("Condition", {}).values())
    principals = sum(len(s["Principal"]) if isinstance(s["Principal"], list) else 1 for s in statements)
    yield from _over(logical_id, "policy bytes", _bytes(policy), QUEUE_POLICY_BYTES)
    yield from _over(logical_id, "policy statements", len(statements), QUEUE_POLICY_STATEMENTS)
    yield from _over(logical_id, "policy conditions", conditions, QUEUE_POLICY_CONDITIONS)
    yield from _over(logical_id, "policy principals", principals, QUEUE_POLICY_PRINCIPALS)


def _over(name: str, unit: str, size: int, limit: int) -> Iterator[str]:
    if size > limit:
        yield f"{name}: {size:,} {unit}, and AWS allows {limit:,}"


def _bytes(document: object) -> int:
    """The size of a document as JSON without white space between its elements."""
    return len(json.dumps(document, separators=(",", ":")).encode())
