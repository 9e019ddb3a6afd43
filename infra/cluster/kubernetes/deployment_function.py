"""Functions of custom resources: they run only during deployments, call the cluster, and answer CloudFormation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Duration, RemovalPolicy, Stack, aws_eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import installation
from infra.cluster import permissions
from infra.cluster.functions import ARCHITECTURES, into_vpc
from infra.cluster.kubernetes import custom_resource
from infra.cluster.permission_scope import allow

if TYPE_CHECKING:
    from infra.options.stack_options import StackOptions

_ROOM = "infra/cluster/kubernetes"
_FOLDERS = ("infra", "infra/cluster", _ROOM, "shared", "shared/cluster")
_FILES = (
    "infra/__init__.py",
    "infra/cluster/__init__.py",
    f"{_ROOM}/__init__.py",
    f"{_ROOM}/custom_resource.py",
    "shared/__init__.py",
    "shared/cluster/__init__.py",
    "shared/cluster/eks_token.py",
)
"""The code of each, besides its module; the rest of it is in Lambda's runtime."""


class DeploymentFunction(Construct):
    """The ``function``, and the access ``entry`` of its role."""

    def __init__(
        self, scope: Construct, id_: str, *, module: str, purpose: str, group: str, options: StackOptions
    ) -> None:
        """``module`` is that of this folder with its ``handle``, ``group`` the Kubernetes group of its role."""
        super().__init__(scope, id_)
        log_group = make_log_group(self)
        role = self._role(f"Tenon: {purpose}", options.cluster, log_group)
        self.function = make_function(
            self, module=module, purpose=purpose, role=role, log_group=log_group, options=options
        )
        if options.subnets:
            role.add_to_policy(permissions.join_network())
        self.entry = aws_eks.CfnAccessEntry(
            self,
            "Entry",
            cluster_name=options.cluster,
            principal_arn=role.role_arn,
            kubernetes_groups=[group],
            type="STANDARD",
        )

    def _role(self, description: str, cluster: str, log_group: logs.LogGroup) -> iam.Role:
        role = iam.Role(self, "Role", description=description, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        arn = Stack.of(self).format_arn(service="eks", resource="cluster", resource_name=cluster)
        role.add_to_policy(allow("DescribeCluster", ["eks:DescribeCluster"], [arn]))
        return role


def make_log_group(scope: Construct) -> logs.LogGroup:
    """The log group of a function that runs during deployments."""
    return logs.LogGroup(scope, "Logs", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY)


def make_function(
    scope: Construct, *, module: str, purpose: str, role: iam.IRole, log_group: logs.ILogGroup, options: StackOptions
) -> lambda_.Function:
    """The function of a module of this folder, in the VPC where the others are."""
    included = [f"!{path}" for path in (*_FOLDERS, *_FILES, f"{_ROOM}/{module}.py")]
    function = lambda_.Function(
        scope,
        "Function",
        description=f"Tenon: {purpose}",
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=ARCHITECTURES[options.function_architecture],
        handler=f"{_ROOM.replace('/', '.')}.{module}.handle",
        code=lambda_.Code.from_asset(str(installation.ROOT), exclude=["*", ".*", *included]),
        memory_size=256,
        timeout=Duration.minutes(2),
        environment={custom_resource.CLUSTER_VARIABLE: options.cluster},
        role=role,
        log_group=log_group,
    )
    if options.subnets:
        into_vpc(function, options)
    return function
