"""The instance profile that gives a class's nodes their role: named by the class, of its role, or the cluster's own.

EC2 takes profiles, users think in roles, so a role's profile is looked up; if it has none, one is made once, under a
name that follows from the role, and any later call finds it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels
from shared.launch.node_class import selector_terms

if TYPE_CHECKING:
    from mypy_boto3_iam import IAMClient

    from shared.api.nodeclass import EC2NodeClass

_NO_SUCH = "NoSuchEntity"
_EXISTS = frozenset({"EntityAlreadyExists", "LimitExceeded"})
_HASH_LENGTH = 10


def select(iam: IAMClient, node_class: EC2NodeClass, *, cluster: str, default: str) -> str:
    """The name of the instance profile. IAM is asked only for a class that names a profile or a role.

    Raises:
        NotFoundError: the profile or the role doesn't exist, or it may not be looked up or given a profile.
    """
    spec = node_class.spec
    if spec.instance_profile:
        _check(iam, spec.instance_profile)
        return spec.instance_profile
    if not spec.role:
        if default:
            return default
        raise selector_terms.NotFoundError(
            "InstanceProfileNotFound", "the class names neither spec.role nor spec.instanceProfile"
        )
    role = spec.role.rpartition("/")[2]
    try:
        profiles = iam.list_instance_profiles_for_role(RoleName=role)["InstanceProfiles"]
    except ClientError as error:
        if selector_terms.code(error) == _NO_SUCH:
            raise _no_such(role) from error
        selector_terms.denied(error, "iam:ListInstanceProfilesForRole", f'spec.role "{role}" can\'t be looked up')
    if profiles:
        return min(p["InstanceProfileName"] for p in profiles)
    return _make(iam, role, cluster)


def _check(iam: IAMClient, profile: str) -> None:
    """Whether it is there and has a role; a profile that may not be looked up is left to EC2's judgement."""
    name = profile.rpartition("/")[2]
    try:
        found = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    except ClientError as error:
        if selector_terms.code(error) in selector_terms.DENIED:
            return
        if selector_terms.code(error) != _NO_SUCH:
            raise
        raise selector_terms.NotFoundError(
            "InstanceProfileNotFound", f'spec.instanceProfile "{profile}" doesn\'t exist in this account'
        ) from error
    if not found["Roles"]:
        raise selector_terms.NotFoundError(
            "InstanceProfileWithoutRole", f'spec.instanceProfile "{profile}" has no role in it: nodes could not join'
        )


def _make(iam: IAMClient, role: str, cluster: str) -> str:
    name = f"tenon-{cluster}-{hashlib.sha256(role.encode()).hexdigest()[:_HASH_LENGTH]}"
    none = f'spec.role "{role}" has no instance profile, and none can be made'
    try:
        iam.create_instance_profile(
            InstanceProfileName=name,
            Tags=[{"Key": labels.CLUSTER_TAG.format(cluster=cluster), "Value": "owned"}],
        )
    except ClientError as error:
        if selector_terms.code(error) not in _EXISTS:
            selector_terms.denied(error, "iam:CreateInstanceProfile, or name one by spec.instanceProfile", none)
    try:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    except ClientError as error:
        if selector_terms.code(error) == _NO_SUCH:
            raise _no_such(role) from error
        if selector_terms.code(error) not in _EXISTS:
            needed = f"iam:AddRoleToInstanceProfile, and iam:PassRole for that role: deploy with -c nodeRoles={role}"
            selector_terms.denied(error, needed, none)
    return name


def _no_such(role: str) -> selector_terms.NotFoundError:
    return selector_terms.NotFoundError("RoleNotFound", f'spec.role "{role}" doesn\'t exist in this account')
