"""The stack of one cluster: its resources, and the outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnOutput, Environment, Stack

from infra.bundle import bundling
from infra.cluster import resource_names
from infra.cluster.permissions_boundary import limit_roles
from infra.cluster.resources import ClusterResources
from infra.options import option_checks
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_lambda as lambda_
    from constructs import Construct

    from infra.options.stack_options import StackOptions


class TenonStack(Stack):
    """All AWS resources of one cluster, in a stack that is named after it."""

    def __init__(
        self,
        scope: Construct,
        *,
        options: StackOptions,
        code: Mapping[str, str] | None = None,
        env: Environment | None = None,
    ) -> None:
        """``code`` is the folder of each function's bundle; None: the options are checked, and the bundles made.

        Raises:
            OptionError: an option is invalid, or not for this stack.
            BundleError: the functions' code can't be bundled.
        """
        if code is None:
            options = option_checks.checked(options, region=env.region if env is not None else None)
            code = bundling.code(options)
        name = resource_names.stack(options.cluster)
        super().__init__(
            scope,
            name,
            stack_name=name,  # in a Stage too
            env=env,
            description=f"Tenon: just-in-time nodes for EKS cluster {options.cluster}",
            analytics_reporting=False,
            # Cost allocation by cluster: CloudFormation gives the tag to all resources, launches give it to instances.
            tags={labels.CLUSTER_NAME_TAG: options.cluster},
        )
        resources = ClusterResources(self, options=options, code=code)
        limit_roles(self, options.permissions_boundary)
        self.node_role: iam.IRole = resources.node_role
        """The role of nodes that Tenon launches."""
        self.functions: Mapping[str, lambda_.Function] = resources.functions
        """The functions by name, such as ``provisioner``."""
        for key, value in resources.outputs.items():
            CfnOutput(self, key, value=value)
