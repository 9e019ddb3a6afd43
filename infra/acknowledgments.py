"""What cdk-nag's rules (AwsSolutions, Serverless) find in the stack and we leave as it is, each with its reason.

The rules run in the tests; an acknowledgment holds for one part of the stack only, so that a new finding of the same
kind elsewhere is still found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Validations

from infra.node_role import POLICIES
from infra.permissions import LAUNCHED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import IConstruct

    from infra.kubectl_apply import ClusterSide
    from infra.queues import Queues

_REGIONAL = "arn:<AWS::Partition>:ec2:<AWS::Region>"
_OWN = f"{_REGIONAL}:<AWS::AccountId>"
_GLOBAL = "arn:<AWS::Partition>:iam::<AWS::AccountId>"

_USED = "what a launch uses, of any account (AWS's images, shared subnets); launching also needs tags on what it makes"
_MADE = "ids are made by EC2; the request or the resource must carry the cluster's tag"


_CDKS = "the CDK's own provider of kubectl, which runs while deploying only; we change nothing in it"
_BASIC = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
_REGISTRY = "arn:<AWS::Partition>:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"
_PUBLIC = (
    '{"Fn::If":["ClusterSideKubectlHandlerHasEcrPublic15D6E39C",{"Fn::Join":["",["arn:",{"Ref":"AWS::Partition"},'
    '":iam::aws:policy/AmazonElasticContainerRegistryPublicReadOnly"]]},{"Ref":"AWS::NoValue"}]}'
)
_PROVIDER = {
    **{f"AwsSolutions::AwsSolutions-IAM4[Policy::{policy}]": _CDKS for policy in (_BASIC, _REGISTRY, _PUBLIC)},
    "AwsSolutions::AwsSolutions-IAM5[Resource::*]": "Lambda's own network interfaces, where the endpoint is private",
    "AwsSolutions::AwsSolutions-L1": _CDKS,
    "Serverless::Serverless-LambdaDLQ": "invoked by CloudFormation, which waits for its answer and rolls back without",
    "Serverless::Serverless-LambdaDefaultMemorySize": _CDKS,
    "Serverless::Serverless-LambdaLatestVersion": _CDKS,
    "Serverless::Serverless-LambdaTracing": _CDKS,
}


def _wildcards(cluster: str) -> dict[str, str]:
    return {
        "*": "each statement's reason is in permissions.WILDCARDS; they only read",
        "arn:<AWS::Partition>:ssm:<AWS::Region>::parameter/aws/service/*": "AWS's public parameters, AMIs among them",
        f"{_GLOBAL}:role/*": "to look up the profile of a role that a node class names; reading only",
        f"{_GLOBAL}:instance-profile/*": "to see whether a profile that a node class names is there; reading only",
        f"{_GLOBAL}:instance-profile/tenon-{cluster}-*": "profiles made here, named by a hash of their role",
        "<{catalog}.Arn>/*": "the bucket holds the catalog and nothing else",
        **{
            f"{_REGIONAL}:*:{name}/*": _USED
            for name in ("capacity-reservation", "image", "placement-group", "security-group", "snapshot", "subnet")
        },
        **{f"{_OWN}:{name}/*": _MADE for name in (*LAUNCHED, "launch-template")},
    }


def acknowledge(
    *,
    cluster: str,
    functions: IConstruct,
    nodes: IConstruct,
    queues: Queues,
    state: IConstruct,
    side: ClusterSide | None,
    catalog_id: str,
) -> None:
    """Say what is meant to be so. ``catalog_id`` is the logical id of the catalog's bucket."""
    latest = "Python 3.13 until every locked package has wheels for a newer one"
    _say(
        functions,
        {
            "AwsSolutions::AwsSolutions-L1": latest,
            "Serverless::Serverless-LambdaLatestVersion": latest,
            "Serverless::Serverless-LambdaTracing": "costs a dollar a month: by -c tracing=active; logs carry the ids",
            "Serverless::Serverless-LambdaDLQ": "the failure destination keeps the same event, and the error with it",
            "Serverless::Serverless-LambdaEventSourceMappingDestination": (
                "SQS sources have none: what fails goes to the queue's own dead-letter queue"
            ),
            **{
                f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource.format(catalog=catalog_id)}]": reason
                for resource, reason in _wildcards(cluster).items()
            },
        },
    )
    _say(
        nodes,
        {
            f"AwsSolutions::AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{name}]": (
                "the policies that AWS asks for on every EKS node, kept current by AWS"
            )
            for name in POLICIES
        },
    )
    _say(queues.undelivered, {"AwsSolutions::AwsSolutions-SQS3": "the dead-letter queue of EventBridge and Lambda"})
    for queue in (*queues.dead_letters.values(), queues.undelivered):
        _say(queue, {"Serverless::Serverless-SQSRedrivePolicy": "a dead-letter queue itself"})
    if side is not None:
        _say(
            side.provider, _PROVIDER | {f"AwsSolutions::AwsSolutions-IAM5[Resource::<{side.handler_id}.Arn>:*]": _CDKS}
        )
    _say(
        state,
        {
            "AwsSolutions::AwsSolutions-DDB3": "the table keeps only what may be lost and expires",
            "AwsSolutions::AwsSolutions-S1": "one public price list, read and written by our functions only",
        },
    )


def _say(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    Validations.of(construct).acknowledge(*(Acknowledgment(id=id_, reason=reason) for id_, reason in reasons.items()))
