"""The instance profile that gives a class's nodes their role: the class's own, the role's, or the cluster's default.

EC2 takes instance profiles, users think in roles. The profile of a role is looked up; if the role has none, one is
created under a name that follows from the role, so that later calls find it.

IAM has no endpoint in most VPCs. Where it can't be reached, only a class with a role that was never resolved isn't
ready; a class with a profile, or with the cluster's default, needs no answer of IAM's.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from shared.api import labels
from shared.api.meta import condition
from shared.api.nodeclass import INSTANCE_PROFILE_READY
from shared.base.aws import error_code
from shared.launch.node_class.selector_terms import DENIED, NotFoundError, raise_denied

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_iam import IAMClient

    from shared.api.nodeclass import EC2NodeClass
    from shared.base.runtime import Runtime

_NO_SUCH_ENTITY = "NoSuchEntity"
_EXISTS = frozenset({"EntityAlreadyExists", "LimitExceeded"})
_HASH_LENGTH = 10
_UNREACHABLE = (BotoConnectionError, HTTPClientError)
_UNREACHABLE_TTL = timedelta(minutes=5)
"""How long IAM isn't called after a time-out: a sweep would wait once for each class."""


def select(iam: IAMClient, node_class: EC2NodeClass, *, cluster: str, default: str, runtime: Runtime) -> str:
    """The name of the instance profile. IAM is called only for a class with a profile or a role.

    The process (``runtime``) remembers for a while that IAM can't be reached.

    Raises:
        NotFoundError: the profile or the role doesn't exist, or looking it up or creating a profile is denied, or IAM
            can't be reached.
    """
    spec = node_class.spec
    if spec.instance_profile:
        if not _is_known_unreachable(runtime):
            try:
                _check_exists(iam, spec.instance_profile)
            except _UNREACHABLE:  # EC2 checks it at the launch
                _remember_unreachable(runtime)
        return spec.instance_profile
    if not spec.role:
        if default:
            return default
        raise NotFoundError("InstanceProfileNotFound", "the class has neither spec.role nor spec.instanceProfile")
    role = spec.role.rpartition("/")[2]
    if _is_known_unreachable(runtime):
        return _resolved_before(node_class, role)
    try:
        return _profile_of_role(iam, role, cluster)
    except _UNREACHABLE:
        _remember_unreachable(runtime)
        return _resolved_before(node_class, role)


def _unreachable_until(runtime: Runtime) -> dict[str, datetime]:
    return runtime.cached("iam:unreachable-until", dict[str, "datetime"])


def _remember_unreachable(runtime: Runtime) -> None:
    _unreachable_until(runtime)["iam"] = runtime.now() + _UNREACHABLE_TTL


def _is_known_unreachable(runtime: Runtime) -> bool:
    until = _unreachable_until(runtime).get("iam")
    return until is not None and runtime.now() < until


def _resolved_before(node_class: EC2NodeClass, role: str) -> str:
    """The profile that the class's status has for this generation of its spec."""
    ready = condition(node_class.status.conditions, INSTANCE_PROFILE_READY)
    if (
        node_class.status.instance_profile
        and ready is not None
        and ready.status == "True"
        and ready.observed_generation == node_class.metadata.generation
    ):
        return node_class.status.instance_profile
    raise NotFoundError(
        "IAMUnreachable",
        f"spec.role \"{role}\" can't be looked up, because IAM can't be reached from the functions' subnets: name the "
        "role's instance profile by spec.instanceProfile, or give the subnets a NAT gateway or an endpoint for IAM",
    )


def _profile_of_role(iam: IAMClient, role: str, cluster: str) -> str:
    try:
        profiles = iam.list_instance_profiles_for_role(RoleName=role)["InstanceProfiles"]
    except ClientError as error:
        if error_code(error) == _NO_SUCH_ENTITY:
            raise _role_not_found(role) from error
        raise_denied(error, "iam:ListInstanceProfilesForRole", f'spec.role "{role}" can\'t be looked up')
    if profiles:
        return min(p["InstanceProfileName"] for p in profiles)
    return _create(iam, role, cluster)


def _check_exists(iam: IAMClient, profile: str) -> None:
    """Check that the profile exists and has a role; if the lookup is denied, EC2 checks it at the launch."""
    name = profile.rpartition("/")[2]
    try:
        described = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    except ClientError as error:
        if error_code(error) in DENIED:
            return
        if error_code(error) != _NO_SUCH_ENTITY:
            raise
        raise NotFoundError(
            "InstanceProfileNotFound", f'spec.instanceProfile "{profile}" doesn\'t exist in this account'
        ) from error
    if not described["Roles"]:
        raise NotFoundError(
            "InstanceProfileWithoutRole", f'spec.instanceProfile "{profile}" has no role, so nodes could not join'
        )


def _create(iam: IAMClient, role: str, cluster: str) -> str:
    name = f"tenon-{cluster}-{hashlib.sha256(role.encode()).hexdigest()[:_HASH_LENGTH]}"
    context = f'spec.role "{role}" has no instance profile, and none can be created'
    try:
        iam.create_instance_profile(
            InstanceProfileName=name,
            Tags=[{"Key": labels.CLUSTER_TAG.format(cluster=cluster), "Value": "owned"}],
        )
    except ClientError as error:
        if error_code(error) not in _EXISTS:
            raise_denied(error, "iam:CreateInstanceProfile, or name one by spec.instanceProfile", context)
    try:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    except ClientError as error:
        if error_code(error) == _NO_SUCH_ENTITY:
            raise _role_not_found(role) from error
        if error_code(error) not in _EXISTS:
            permission = (
                f"iam:AddRoleToInstanceProfile, and iam:PassRole for that role: deploy with -c nodeRoles={role}"
            )
            raise_denied(error, permission, context)
    return name


def _role_not_found(role: str) -> NotFoundError:
    return NotFoundError("RoleNotFound", f'spec.role "{role}" doesn\'t exist in this account')
