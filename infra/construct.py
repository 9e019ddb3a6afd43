"""Tenon for other CDK apps: a stack of its own, or a construct in a stack of theirs (docs/construct.md).

This module is the public interface of ``infra``: what it exports keeps its names and meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack, Tags, Token
from constructs import Construct

from infra.bundle import bundling
from infra.bundle.bundling import BundleError
from infra.cluster.permissions_boundary import limit_roles
from infra.cluster.resources import ClusterResources
from infra.cluster.stack import TenonStack
from infra.options import option_checks
from infra.options.stack_options import OptionError, StackOptions
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_lambda as lambda_

__all__ = ["BundleError", "OptionError", "StackOptions", "Tenon", "TenonStack"]


class Tenon(Construct):
    """All AWS resources of one cluster, in a stack with other resources."""

    def __init__(self, scope: Construct, construct_id: str, *, options: StackOptions) -> None:
        """The resources' names follow from the cluster's, as in a stack of Tenon's own.

        Raises:
            OptionError: an option is invalid, or not for this construct.
            BundleError: the functions' code can't be bundled.
        """
        super().__init__(scope, construct_id)
        region = Stack.of(self).region
        options = option_checks.checked(options, region=None if Token.is_unresolved(region) else region)
        resources = ClusterResources(self, options=options, code=bundling.code(options))
        limit_roles(self, options.permissions_boundary)
        # The stack isn't Tenon's, so each resource has the tag for cost allocation.
        Tags.of(self).add(labels.CLUSTER_NAME_TAG, options.cluster)
        self.node_role: iam.IRole = resources.node_role
        """The role of nodes that Tenon launches."""
        self.functions: Mapping[str, lambda_.Function] = resources.functions
        """The functions by name, such as ``provisioner``."""
        self.outputs: Mapping[str, str] = resources.outputs
        """What a stack of Tenon's own has as outputs, by name, such as ``NodeRoleArn``."""
