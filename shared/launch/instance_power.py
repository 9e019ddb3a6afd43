"""Stops and starts instances that are kept on standby, and reboots those of unhealthy nodes.

EC2 keeps a stopped instance's id, volumes and private address, and charges for the volumes only. It reserves no
capacity: StartInstances may answer InsufficientInstanceCapacity, also for one instance of several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels as names
from shared.base.aws import error_code
from shared.cloud_provider import LaunchFailure, RebootFailure, instance_id
from shared.launch.fleet import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2 import EC2Client

    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import FailureKind
    from shared.instance_types.instance_type import OfferingKey


def start(ec2: EC2Client, claims: Sequence[NodeClaim]) -> tuple[LaunchFailure, ...]:
    """Start the NodeClaims' instances; returns the failures. Starting a running instance again is harmless.

    The instances of one offering share a call; if it fails, they are started one by one until one has no capacity.
    """
    by_offering: dict[OfferingKey, list[NodeClaim]] = {}
    for claim in claims:
        by_offering.setdefault(_offering(claim), []).append(claim)
    failures: list[LaunchFailure] = []
    for offering, group in by_offering.items():
        failures += _start_group(ec2, offering, group)
    return tuple(failures)


def stop(ec2: EC2Client, instance_ids: Sequence[str]) -> dict[str, str]:
    """Stop the instances; returns EC2's error by instance. Stopping a stopped instance again is harmless."""
    errors: dict[str, str] = {}
    for known_id in instance_ids:
        try:
            ec2.stop_instances(InstanceIds=[known_id])
        except ClientError as error:
            errors[known_id] = str(error)
    return errors


def reboot(ec2: EC2Client, instance_id: str) -> RebootFailure | None:
    """Request a reboot; EC2 answers at once, and reboots hard if the instance doesn't shut down within a few minutes.

    A missing right and an unknown instance are final, as in Karpenter. RebootInstances has no client token.
    """
    try:
        ec2.reboot_instances(InstanceIds=[instance_id])
    except ClientError as error:
        code = error_code(error)
        is_final = code == "UnauthorizedOperation" or code.startswith("InvalidInstanceID")
        return RebootFailure(
            message=errors.user_message(code, error.response["Error"].get("Message", "")), final=is_final
        )
    return None


def _start_group(ec2: EC2Client, offering: OfferingKey, group: Sequence[NodeClaim]) -> list[LaunchFailure]:
    error = _try_to_start(ec2, group)
    if error is None:
        return []
    if len(group) == 1 or _kind(error) == "throttled":
        return [_failure(claim, offering, error) for claim in group]
    failures: list[LaunchFailure] = []
    for number, claim in enumerate(group):
        error = _try_to_start(ec2, [claim])
        if error is not None and _kind(error) == "capacity":
            return [*failures, *(_failure(c, offering, error) for c in group[number:])]
        if error is not None:
            failures.append(_failure(claim, offering, error))
    return failures


def _try_to_start(ec2: EC2Client, claims: Sequence[NodeClaim]) -> ClientError | None:
    try:
        ec2.start_instances(InstanceIds=[instance_id(c.status.provider_id) for c in claims])
    except ClientError as error:
        return error
    return None


def _kind(error: ClientError) -> FailureKind:
    """As of a launch; an instance that EC2 doesn't know is gone."""
    code = error_code(error)
    return "gone" if code.startswith("InvalidInstanceID") else errors.kind(code)


def _failure(claim: NodeClaim, offering: OfferingKey, error: ClientError) -> LaunchFailure:
    kind = _kind(error)
    return LaunchFailure(
        claim_name=claim.name,
        kind=kind,
        reason=error_code(error).replace(".", ""),
        message=errors.user_message(error_code(error), error.response["Error"].get("Message", "")),
        unavailable=(offering,) if kind == "capacity" else (),
    )


def _offering(claim: NodeClaim) -> OfferingKey:
    labels = claim.metadata.labels
    return (
        labels.get(names.CAPACITY_TYPE, ""),
        labels.get(names.INSTANCE_TYPE, ""),
        labels.get(names.ZONE, ""),
    )
