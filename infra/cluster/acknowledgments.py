"""Findings of cdk-nag's rules (AwsSolutions, Serverless) that are accepted, each with its reason.

The rules run in the tests. An acknowledgment only holds for one part of the stack, so the same finding elsewhere still
fails.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Validations

from infra.cluster.node_role import POLICIES
from infra.cluster.permissions import LAUNCHED
from shared.shadow.store import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import IConstruct

    from infra.cluster.kubernetes.kubectl_apply import KubectlApply
    from infra.cluster.queues import Queues

_REGIONAL = "arn:<AWS::Partition>:ec2:<AWS::Region>"
_OWN = f"{_REGIONAL}:<AWS::AccountId>"
_GLOBAL = "arn:<AWS::Partition>:iam::<AWS::AccountId>"

_LAUNCH_INPUT = "resources that launches use, of any account (AWS's images, shared subnets); new resources require tags"
_EC2_IDS = "EC2 assigns the ids; the request or the resource must have the cluster's tag"


_CDK_PROVIDER = "the CDK's kubectl provider, which only runs during deployments; it is used unchanged"
_BASIC = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
_REGISTRY = "arn:<AWS::Partition>:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"
_PROVIDER = {
    **{f"AwsSolutions::AwsSolutions-IAM4[Policy::{policy}]": _CDK_PROVIDER for policy in (_BASIC, _REGISTRY)},
    "AwsSolutions::AwsSolutions-IAM5[Resource::*]": "Lambda's network interfaces, if the cluster endpoint is private",
    "AwsSolutions::AwsSolutions-L1": _CDK_PROVIDER,
    "Serverless::Serverless-LambdaDLQ": "CloudFormation invokes it and waits for its response",
    "Serverless::Serverless-LambdaDefaultMemorySize": _CDK_PROVIDER,
    "Serverless::Serverless-LambdaLatestVersion": _CDK_PROVIDER,
    "Serverless::Serverless-LambdaTracing": _CDK_PROVIDER,
}

_LATEST = "Python 3.13 until all locked packages have wheels for a newer version"
_FUNCTIONS = {
    "AwsSolutions::AwsSolutions-L1": _LATEST,
    "Serverless::Serverless-LambdaLatestVersion": _LATEST,
    "Serverless::Serverless-LambdaTracing": "optional (-c tracing=active): it costs a dollar a month",
}
_DEAD_LETTERS = {"Serverless::Serverless-SQSRedrivePolicy": "it is a dead-letter queue"}
_UNDELIVERED = _DEAD_LETTERS | {
    "AwsSolutions::AwsSolutions-SQS3": "it is the dead-letter queue of EventBridge and Lambda"
}
_TABLE = {"AwsSolutions::AwsSolutions-DDB3": "the table only holds data that may be lost"}
_EXPIRING_TABLE = {"AwsSolutions::AwsSolutions-DDB3": "the table only holds data that may be lost and expires"}
_ASYNC = {"Serverless::Serverless-LambdaDLQ": "the failure destination keeps the event and the error"}
_DEPLOYMENT = {
    "AwsSolutions::AwsSolutions-IAM5[Resource::*]": "Lambda's network interfaces, with -c subnets",
    "AwsSolutions::AwsSolutions-L1": _LATEST,
    "Serverless::Serverless-LambdaDLQ": "CloudFormation invokes it and waits for its response",
    "Serverless::Serverless-LambdaLatestVersion": _LATEST,
    "Serverless::Serverless-LambdaTracing": "it runs for a second in a deployment",
}
_SOURCES = {
    "Serverless::Serverless-LambdaEventSourceMappingDestination": (
        "SQS event sources have none: failed messages go to the queue's own dead-letter queue"
    )
}
_NODES = {
    f"AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{name}]": (
        "AWS requires these policies for EKS nodes and keeps them current"
    )
    for name in POLICIES
}
_BUCKET = {"AwsSolutions::AwsSolutions-S1": "it holds public prices, and only Tenon's functions access it"}


def _wildcards(cluster: str) -> dict[str, str]:
    return {
        "*": "permission_scope.WILDCARDS has the reason of each statement; they only read",
        "arn:<AWS::Partition>:ssm:<AWS::Region>::parameter/aws/service/*": "AWS's public parameters, AMIs among them",
        f"{_GLOBAL}:role/*": "finds the instance profile of a node class's role; read-only",
        f"{_GLOBAL}:instance-profile/*": "checks that a node class's instance profile exists; read-only",
        f"{_GLOBAL}:instance-profile/tenon-{cluster}-*": "profiles that Tenon creates, named by a hash of their role",
        "{catalog}/*": "the bucket only holds the catalog",
        **{
            f"{_REGIONAL}:*:{name}/*": _LAUNCH_INPUT
            for name in ("capacity-reservation", "image", "placement-group", "security-group", "snapshot", "subnet")
        },
        **{f"{_OWN}:{name}/*": _EC2_IDS for name in (*LAUNCHED, "launch-template")},
    }


def acknowledge(
    *,
    cluster: str,
    functions: IConstruct,
    nodes: IConstruct,
    queues: Queues,
    storage: IConstruct,
    kubectl: KubectlApply | None,
    webhook: IConstruct | None,
    catalog: str,
) -> None:
    """Acknowledge the findings. ``catalog`` is the catalog bucket's ARN in findings."""
    _acknowledge(functions, {**_FUNCTIONS, **_ASYNC, **_SOURCES, **_iam5(_wildcards(cluster), catalog)})
    _acknowledge(nodes, _NODES)
    if queues.own_undelivered is not None:
        _acknowledge(queues.own_undelivered, _UNDELIVERED)
    for queue in queues.dead_letters.values():
        _acknowledge(queue, _DEAD_LETTERS)
    if kubectl is not None:
        _acknowledge_kubectl(kubectl)
    if webhook is not None:
        _acknowledge(webhook, _DEPLOYMENT)
    _acknowledge(storage, {**_EXPIRING_TABLE, **_BUCKET})


def _acknowledge_kubectl(kubectl: KubectlApply) -> None:
    own = (
        f"AwsSolutions::AwsSolutions-IAM4[Policy::{_public_registry(kubectl.public_registry_id)}]",
        f"AwsSolutions::AwsSolutions-IAM5[Resource::<{kubectl.handler_id}.Arn>:*]",
    )
    _acknowledge(kubectl.provider, _PROVIDER | dict.fromkeys(own, _CDK_PROVIDER))
    _acknowledge(kubectl.wait, _DEPLOYMENT)
    if kubectl.kinds_check is not None:
        _acknowledge(kubectl.kinds_check, _DEPLOYMENT)


def acknowledge_shadow(
    *, cluster: str, functions: IConstruct, schedules: IConstruct, storage: IConstruct, catalog_id: str
) -> None:
    """Acknowledge the findings in shadow mode."""
    own = {
        "*": "permission_scope.WILDCARDS has the reason of each statement; they only read",
        "arn:<AWS::Partition>:ssm:<AWS::Region>::parameter/aws/service/*": "AWS's public parameters, AMIs among them",
        f"arn:<AWS::Partition>:eks:<AWS::Region>:<AWS::AccountId>:nodegroup/{cluster}/*/*": "the cluster's own groups",
        "{catalog}/*": "the bucket only holds the catalog and the record",
        f"{{catalog}}/{PREFIX}*": "the record, and the days that have ended",
    }
    rules = ("Serverless-LambdaDLQ", "Serverless-LambdaAsyncFailureDestination", "Serverless-EventBusDLQ")
    undelivered = dict.fromkeys(
        (f"Serverless::{rule}" for rule in rules), "the next run counts the time of one that failed"
    )
    _acknowledge(functions, {**_FUNCTIONS, **undelivered, **_iam5(own, f"<{catalog_id}.Arn>")})
    _acknowledge(schedules, undelivered)
    _acknowledge(storage, _BUCKET)


def acknowledge_fleet(*, functions: IConstruct, undelivered: IConstruct, storage: IConstruct, catalog_id: str) -> None:
    """Acknowledge the findings in a fleet's stack."""
    own = {
        "*": "permission_scope.WILDCARDS has the reason of each statement; they only read",
        "{catalog}/*": "the bucket only holds the catalog",
    }
    _acknowledge(functions, {**_FUNCTIONS, **_ASYNC, **_iam5(own, f"<{catalog_id}.Arn>")})
    _acknowledge(undelivered, _UNDELIVERED)
    _acknowledge(storage, {**_TABLE, **_BUCKET})


def _public_registry(condition: str) -> str:
    """The policy that the CDK's kubectl function has where the partition has a public registry."""
    policy = ["arn:", {"Ref": "AWS::Partition"}, ":iam::aws:policy/AmazonElasticContainerRegistryPublicReadOnly"]
    value = {"Fn::If": [condition, {"Fn::Join": ["", policy]}, {"Ref": "AWS::NoValue"}]}
    return json.dumps(value, separators=(",", ":"))


def _iam5(reasons: Mapping[str, str], catalog: str) -> dict[str, str]:
    """The findings on these resources."""
    return {
        f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource.format(catalog=catalog)}]": reason
        for resource, reason in reasons.items()
    }


def _acknowledge(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    Validations.of(construct).acknowledge(*(Acknowledgment(id=id_, reason=reason) for id_, reason in reasons.items()))
