"""Findings of cdk-nag's rules (AwsSolutions, Serverless) that are accepted, each with its reason.

The rules run in the tests. An acknowledgment only holds for one part of the stack, so the same finding elsewhere still
fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Validations

from infra.node_role import POLICIES
from infra.permissions import LAUNCHED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import IConstruct

    from infra.kubectl_apply import KubectlApply
    from infra.queues import Queues

_REGIONAL = "arn:<AWS::Partition>:ec2:<AWS::Region>"
_OWN = f"{_REGIONAL}:<AWS::AccountId>"
_GLOBAL = "arn:<AWS::Partition>:iam::<AWS::AccountId>"

_LAUNCH_INPUT = "resources that launches use, of any account (AWS's images, shared subnets); new resources require tags"
_EC2_IDS = "EC2 assigns the ids; the request or the resource must have the cluster's tag"


_CDK_PROVIDER = "the CDK's kubectl provider, which only runs during deployments; it is used unchanged"
_BASIC = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
_REGISTRY = "arn:<AWS::Partition>:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"
_PUBLIC = (
    '{"Fn::If":["ClusterSideKubectlHandlerHasEcrPublic15D6E39C",{"Fn::Join":["",["arn:",{"Ref":"AWS::Partition"},'
    '":iam::aws:policy/AmazonElasticContainerRegistryPublicReadOnly"]]},{"Ref":"AWS::NoValue"}]}'
)
_PROVIDER = {
    **{f"AwsSolutions::AwsSolutions-IAM4[Policy::{policy}]": _CDK_PROVIDER for policy in (_BASIC, _REGISTRY, _PUBLIC)},
    "AwsSolutions::AwsSolutions-IAM5[Resource::*]": "Lambda's network interfaces, if the cluster endpoint is private",
    "AwsSolutions::AwsSolutions-L1": _CDK_PROVIDER,
    "Serverless::Serverless-LambdaDLQ": "CloudFormation invokes it and waits for its response",
    "Serverless::Serverless-LambdaDefaultMemorySize": _CDK_PROVIDER,
    "Serverless::Serverless-LambdaLatestVersion": _CDK_PROVIDER,
    "Serverless::Serverless-LambdaTracing": _CDK_PROVIDER,
}


def _wildcards(cluster: str) -> dict[str, str]:
    return {
        "*": "permissions.WILDCARDS has the reason of each statement; they only read",
        "arn:<AWS::Partition>:ssm:<AWS::Region>::parameter/aws/service/*": "AWS's public parameters, AMIs among them",
        f"{_GLOBAL}:role/*": "finds the instance profile of a node class's role; read-only",
        f"{_GLOBAL}:instance-profile/*": "checks that a node class's instance profile exists; read-only",
        f"{_GLOBAL}:instance-profile/tenon-{cluster}-*": "profiles that Tenon creates, named by a hash of their role",
        "<{catalog}.Arn>/*": "the bucket only holds the catalog",
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
    catalog_id: str,
) -> None:
    """Acknowledge the findings. ``catalog_id`` is the logical id of the catalog bucket."""
    latest = "Python 3.13 until all locked packages have wheels for a newer version"
    _acknowledge(
        functions,
        {
            "AwsSolutions::AwsSolutions-L1": latest,
            "Serverless::Serverless-LambdaLatestVersion": latest,
            "Serverless::Serverless-LambdaTracing": "optional (-c tracing=active): it costs a dollar a month",
            "Serverless::Serverless-LambdaDLQ": "the failure destination keeps the event and the error",
            "Serverless::Serverless-LambdaEventSourceMappingDestination": (
                "SQS event sources have none: failed messages go to the queue's own dead-letter queue"
            ),
            **{
                f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource.format(catalog=catalog_id)}]": reason
                for resource, reason in _wildcards(cluster).items()
            },
        },
    )
    _acknowledge(
        nodes,
        {
            f"AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{name}]": (
                "AWS requires these policies for EKS nodes and keeps them current"
            )
            for name in POLICIES
        },
    )
    _acknowledge(
        queues.undelivered, {"AwsSolutions::AwsSolutions-SQS3": "it is the dead-letter queue of EventBridge and Lambda"}
    )
    for queue in (*queues.dead_letters.values(), queues.undelivered):
        _acknowledge(queue, {"Serverless::Serverless-SQSRedrivePolicy": "it is a dead-letter queue"})
    if kubectl is not None:
        _acknowledge(
            kubectl.provider,
            _PROVIDER | {f"AwsSolutions::AwsSolutions-IAM5[Resource::<{kubectl.handler_id}.Arn>:*]": _CDK_PROVIDER},
        )
    if kubectl is not None and kubectl.kinds_check is not None:
        _acknowledge(
            kubectl.kinds_check,
            {
                "AwsSolutions::AwsSolutions-IAM5[Resource::*]": "Lambda's network interfaces, with -c subnets",
                "AwsSolutions::AwsSolutions-L1": latest,
                "Serverless::Serverless-LambdaDLQ": "CloudFormation invokes it and waits for its response",
                "Serverless::Serverless-LambdaLatestVersion": latest,
                "Serverless::Serverless-LambdaTracing": "it runs for a second in a deployment",
            },
        )
    _acknowledge(
        storage,
        {
            "AwsSolutions::AwsSolutions-DDB3": "the table only holds data that may be lost and expires",
            "AwsSolutions::AwsSolutions-S1": "it holds public prices, and only Tenon's functions access it",
        },
    )


def _acknowledge(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    Validations.of(construct).acknowledge(*(Acknowledgment(id=id_, reason=reason) for id_, reason in reasons.items()))
