"""Actions that no code calls and that no role may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.aws.iam_policies import Request
from tests.integration.least_privilege.calls import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.integration.least_privilege.conftest import Targets

_SPOT_ROLE = "arn:aws:iam::123456789012:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
_HERE = "arn:aws:ec2:us-east-1:123456789012"
_WITHOUT_POOL = {"aws:RequestTag/kubernetes.io/cluster/demo": ["owned"]}
_WITHOUT_CLUSTER = {"aws:RequestTag/karpenter.sh/nodepool": ["x"]}
_TAGGED = {**_WITHOUT_POOL, **_WITHOUT_CLUSTER}
_OWN = {"aws:ResourceTag/kubernetes.io/cluster/demo": ["owned"], "aws:ResourceTag/karpenter.sh/nodepool": ["x"]}


@dataclass(frozen=True, kw_only=True)
class IAMRequest:
    """A request that every role must be denied, evaluated by IAM directly."""

    action: str
    resource: Callable[[Targets], str]
    context: Mapping[str, list[str]] = field(default_factory=dict)

    def request(self, targets: Targets) -> Request:
        context = {"aws:RequestedRegion": ["us-east-1"], "aws:SecureTransport": ["true"], **self.context}
        return Request(action=self.action, resource=self.resource(targets), context=context)


def _is(text: str) -> Callable[[Targets], str]:
    return lambda _: text


def _arn(targets: Targets, logical: str, shape: str) -> str:
    (name,) = (physical for id_, physical in targets.cloud.deployed.physical_ids.items() if id_.startswith(logical))
    return shape.format(name)


_LOGS = "arn:aws:logs:us-east-1:123456789012:log-group:{}"
UNUSED_ACTIONS: tuple[IAMRequest, ...] = (
    IAMRequest(
        action="cloudwatch:DeleteAlarms", resource=_is("arn:aws:cloudwatch:us-east-1:123456789012:alarm:latency")
    ),
    IAMRequest(action="ec2:DeleteVpc", resource=_is(f"{_HERE}:vpc/vpc-1")),
    IAMRequest(action="ec2:DeleteSubnet", resource=_is(f"{_HERE}:subnet/subnet-1")),
    IAMRequest(action="ec2:ModifyInstanceAttribute", resource=_is(f"{_HERE}:instance/i-1"), context=_OWN),
    IAMRequest(action="ec2:ModifyLaunchTemplate", resource=_is(f"{_HERE}:launch-template/lt-1"), context=_OWN),
    IAMRequest(action="ec2:ModifyLaunchTemplate", resource=_is(f"{_HERE}:launch-template/lt-1"), context=_TAGGED),
    IAMRequest(action="ec2:RunInstances", resource=_is(f"{_HERE}:key-pair/k"), context=_TAGGED),
    IAMRequest(action="ec2:RunInstances", resource=_is(f"{_HERE}:instance/*"), context=_WITHOUT_CLUSTER),
    IAMRequest(action="ec2:RunInstances", resource=_is(f"{_HERE}:instance/*"), context=_WITHOUT_POOL),
    IAMRequest(
        action="ec2:CreateTags",
        resource=_is(f"{_HERE}:instance/*"),
        context={**_WITHOUT_CLUSTER, "ec2:CreateAction": ["RunInstances"]},
    ),
    IAMRequest(action="ec2:CreateVolume", resource=_is(f"{_HERE}:volume/*"), context=_TAGGED),
    IAMRequest(
        action="ec2:CopyVolumes",
        resource=_is(f"{_HERE}:volume/*"),
        context={**_TAGGED, "ec2:CreateAction": ["RunInstances"]},
    ),
    IAMRequest(
        action="ec2:CreateTags",
        resource=_is(f"{_HERE}:snapshot/*"),
        context={**_TAGGED, "ec2:CreateAction": ["RunInstances"]},
    ),
    IAMRequest(
        action="ec2:CreateTags",
        resource=_is(f"{_HERE}:volume/*"),
        context={**_TAGGED, "ec2:CreateAction": ["CreateVolume"]},
    ),
    IAMRequest(
        action="iam:PassRole",
        resource=lambda targets: targets.cloud.deployed.outputs["NodeRoleArn"],
        context={"iam:PassedToService": ["lambda.amazonaws.com"]},
    ),
    IAMRequest(
        action="iam:DeleteRole",
        resource=lambda targets: targets.cloud.deployed.outputs["NodeRoleArn"],
        context={"iam:PassedToService": ["ec2.amazonaws.com"]},
    ),
    IAMRequest(action="iam:DeleteRole", resource=_is("arn:aws:iam::123456789012:role/any")),
    IAMRequest(action="iam:DeleteInstanceProfile", resource=_is("arn:aws:iam::123456789012:instance-profile/any")),
    IAMRequest(
        action="iam:DeleteInstanceProfile",
        resource=_is("arn:aws:iam::123456789012:instance-profile/tenon-demo-1"),
        context=_TAGGED,
    ),
    IAMRequest(
        action="iam:CreateServiceLinkedRole",
        resource=_is(_SPOT_ROLE.replace("spot", "eks")),
        context={"iam:AWSServiceName": ["spot.amazonaws.com"]},
    ),
    IAMRequest(action="iam:CreateServiceLinkedRole", resource=_is(_SPOT_ROLE), context={"iam:AWSServiceName": ["eks"]}),
    IAMRequest(
        action="iam:DeleteServiceLinkedRole",
        resource=_is(_SPOT_ROLE),
        context={"iam:AWSServiceName": ["spot.amazonaws.com"]},
    ),
    IAMRequest(
        action="events:DeleteEventBus",
        resource=_is("arn:aws:events:us-east-1:123456789012:event-bus/tenon-demo"),
        context={"events:source": ["tenon.functions"]},
    ),
    IAMRequest(
        action="events:DeleteEventBus",
        resource=_is("arn:aws:events:us-east-1:123456789012:event-bus/tenon-demo"),
        context={"events:source": ["tenon.relay"]},
    ),
    *(
        IAMRequest(
            action="events:PutEvents",
            resource=_is("arn:aws:events:us-east-1:123456789012:event-bus/tenon-demo"),
            context=context,
        )
        for own in ("tenon.functions", "tenon.relay")
        for context in (
            {"events:detail-type": ["Node Group Scaled Down"]},
            {"events:source": [own, "aws.ec2"], "events:detail-type": ["Node Group Scaled Down"]},
        )
    ),
    IAMRequest(action="s3:DeleteBucket", resource=lambda targets: f"arn:aws:s3:::{targets.bucket}"),
    IAMRequest(action="ssm:DeleteParameter", resource=_is("arn:aws:ssm:us-east-1::parameter/aws/service/eks/x")),
    IAMRequest(action="logs:PutLogEvents", resource=_is(_LOGS.format("others"))),
    IAMRequest(action="sqs:SendMessage", resource=_is("arn:aws:sqs:us-east-1:123456789012:others")),
    IAMRequest(action="sqs:ReceiveMessage", resource=_is("arn:aws:sqs:us-east-1:123456789012:others")),
    *(
        IAMRequest(
            action="logs:DeleteLogGroup",
            resource=lambda targets, name=name: _arn(targets, f"Functions{name.capitalize()}Logs", _LOGS),  # type: ignore[misc]  # a bound default
        )
        for name in sorted(ALL)
    ),
)
