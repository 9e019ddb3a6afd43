"""The account of a call, and the attributes of its resources that permissions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shared.base.struct import Struct

Params = Mapping[str, Any]
"""A call's parameters, as boto3 takes them."""
Tags = Mapping[str, str]
Permission = tuple[str, str, dict[str, list[str]]]
"""Action, resource, condition keys."""


class ResourceLookup(Protocol):
    """The attributes of existing resources that permissions depend on."""

    def tags(self, resource_id: str) -> Tags:
        """The tags of an EC2 resource."""

    def template(self, name_or_id: str) -> tuple[str, Mapping[str, Any]]:
        """The id and the newest data of a launch template by its name or id; ("", {}) if there is none."""

    def role_of(self, profile: str) -> str:
        """The ARN of the role in an instance profile, by the profile's name; "" if there is none."""

    def auto_scaling_group(self, name: str) -> tuple[str, Tags]:
        """The id and the tags of an Auto Scaling group; ("", {}) if there is none."""

    def group_of_instance(self, instance_id: str) -> str:
        """The name of the Auto Scaling group with the instance; "" if there is none."""

    def node_group_id(self, cluster: str, name: str) -> str:
        """The last part of a managed node group's ARN; "" if there is none."""

    def object_exists(self, bucket: str, key: str) -> bool:
        """Whether the S3 object exists."""


class CallContext(Struct, kw_only=True):
    """The account and Region of a call, and the resources there."""

    account: str
    region: str
    resources: ResourceLookup
    partition: str = "aws"

    def arn(self, service: str, resource: str, *, region: str | None = None, account: str | None = None) -> str:
        """An ARN; by default in the caller's Region and account."""
        arn_region = self.region if region is None else region
        arn_account = self.account if account is None else account
        return f"arn:{self.partition}:{service}:{arn_region}:{arn_account}:{resource}"

    def role(self, name: str) -> str:
        """A role's ARN."""
        return self.arn("iam", f"role/{name}", region="")
