"""The permissions boundary of all roles, for accounts whose rules demand one (``-c permissionsBoundary``).

It is set on every role of a stack, the CDK's own too (those of the function that applies objects). What it must allow
is what the roles do: docs/reference/iam.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_iam as iam

if TYPE_CHECKING:
    from constructs import Construct


def limit_roles(scope: Construct, boundary: str) -> None:
    """Set the boundary, by its policy's name or ARN, on all roles in the scope; "" leaves them without one."""
    if boundary:
        by = iam.ManagedPolicy
        is_arn = boundary.startswith("arn:")
        policy = (by.from_managed_policy_arn if is_arn else by.from_managed_policy_name)(scope, "Boundary", boundary)
        iam.PermissionsBoundary.of(scope).apply(policy)
