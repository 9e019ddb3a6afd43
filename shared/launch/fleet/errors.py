"""EC2's error codes of CreateFleet: what kind of failure each is, what to tell the user, and when to retry.

Most errors of a CreateFleet call name an offering. Unless no other offering can help, it is avoided for a while and the
next is tried, as after insufficient capacity. Source of the capacity codes: docs/facts/karpenter.md, section 4.

After insufficient capacity, the NodeClaims without an instance are launched by the next capacity type only when every
offering of the plan has no capacity: scheduling again would find more expensive offerings of the same capacity type.
Otherwise the NodeClaims fail, and their pods are scheduled again without the unavailable offerings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import with_fields
from shared.cloud_provider import LaunchFailure
from shared.launch.fleet.overrides import without_unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.cloud_provider import FailureKind, LaunchResult
    from shared.launch.fleet.overrides import FleetPlan


NO_CAPACITY = frozenset(
    {
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientReservedInstancesCapacity",
        "InsufficientVolumeCapacity",
        "ReservationCapacityExceeded",
        "ReservedInstancesUnavailable",
        "UnfulfillableCapacity",
    }
)
"""EC2 has none of an offering now."""
_QUOTAS = frozenset(
    {
        "HostLimitExceeded",
        "InstanceLimitExceeded",
        "MaxFleetCountExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
    }
)
"""Quotas that differ by capacity type or instance family."""
_VCPU_QUOTAS = frozenset({"InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"})
"""Quotas of vCPUs, which all types of some families share."""
SPOT_ROLE_MISSING = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
"""The account has no service-linked role for spot instances, and the function may not create it."""
_OTHER_OFFERINGS_HELP = frozenset(
    {
        SPOT_ROLE_MISSING,
        "AttachmentLimitExceeded",
        "EncryptedVolumesNotSupported",
        "IncompatibleHostRequirements",
        "InstanceCreditSpecification.NotSupported",
        "InvalidAvailabilityZone",
        "InvalidCapacityReservationId.NotFound",
        "InvalidCapacityReservationIdNotFoundException",
        "InvalidCapacityReservationState.Unavailable",
        "InvalidHostState",
        "InvalidInstanceFamily",
        "InvalidInstanceType",
        "InvalidInterface.IpAddressLimitExceeded",
        "InvalidReservationID.NotFound",
        "InvalidZone.NotFound",
        "LimitPriceExceeded",
        "NonEBSInstance",
        "PrivateIpAddressLimitExceeded",
        "SpotMaxPriceTooLow",
        "UnavailableHostRequirements",
        "Unsupported",
        "UnsupportedException",
        "UnsupportedHibernationConfiguration",
        "UnsupportedHostConfiguration",
        "UnsupportedInstanceTypeOnHost",
        "UnsupportedOperation",
        "UnsupportedTenancy",
        "VolumeTypeNotAvailableInZone",
        "ZonesMismatched",
    }
)
"""What one type, zone, reservation or capacity type doesn't do, and another may."""
CAPACITY = NO_CAPACITY | _QUOTAS | _OTHER_OFFERINGS_HELP
_WHOLE_CAPACITY_TYPE = frozenset({SPOT_ROLE_MISSING})
"""Whatever offering the error names, it holds for all of the capacity type."""
THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded",
        "ConcurrentTagAccess",
        "CreditSpecificationUpdateInProgress",
        "EC2ThrottledException",
        "InternalError",
        "InternalFailure",
        "InvalidSecurity.RequestHasExpired",
        "PriorRequestNotComplete",
        "RequestExpired",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottledException",
        "ThrottlingException",
        "TooManyRequestsException",
        "Unavailable",
    }
)
"""Also EC2's own failures, and requests that were late: the same request may succeed in a while."""
LAUNCH_TEMPLATE_NOT_FOUND = frozenset(
    {
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
        "InvalidLaunchTemplateId.VersionNotFound",
    }
)
NOT_FOUND = LAUNCH_TEMPLATE_NOT_FOUND | {
    "InvalidSubnetID.NotFound",
    "InvalidSubnetId.NotFound",
    "InvalidGroup.NotFound",
    "InvalidGroupId.NotFound",
    "InvalidAMIID.NotFound",
    "InvalidAMIID.Unavailable",
    "InvalidSecurityGroupID.NotFound",
    "InvalidSubnet",
}
"""Something that the node class's status names was deleted: resolve the class again."""

INSTANCE_TERMINATED = "IdempotentInstanceTerminated"
USED_TOKEN = frozenset({"IdempotentParameterMismatch", INSTANCE_TERMINATED})
"""The ClientToken was used before: by a request that differed, or for an instance that is terminated now. The group's
instances are listed, and those that have ended are launched by another token."""
INVALID_REQUEST = "InvalidRequest"
"""botocore refused to send the request: a bug of Tenon's, which no retry mends."""

DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
_CONFIGURATION = DENIED | {
    # the account
    "AuthFailure",
    "Blocked",
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "OperationNotPermitted",
    "OptInRequired",
    "PendingVerification",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    # the request
    INVALID_REQUEST,
    "InvalidAction",
    "InvalidCharacter",
    "InvalidClientToken",
    "InvalidFleetConfig",
    "InvalidFleetConfiguration",
    "InvalidInput",
    "InvalidLaunchTemplateId.Malformed",
    "InvalidLaunchTemplateName.MalformedException",
    "InvalidParameter",
    "InvalidParameterCombination",
    "InvalidParameterDependency",
    "InvalidParameterValue",
    "InvalidQueryParameter",
    "InvalidSpotFleetRequestConfig",
    "InvalidTargetCapacitySpecification",
    "MalformedQueryString",
    "MissingAction",
    "MissingInput",
    "MissingParameter",
    "NoSuchVersion",
    "RequestResourceCountExceeded",
    "ResourceCountExceeded",
    "UnknownParameter",
    "ValidationError",
    # the node class
    "BootForVolumeTypeUnsupported",
    "CustomerKeyHasBeenRevoked",
    "InvalidAMIID.Malformed",
    "InvalidAffinity",
    "InvalidBlockDeviceMapping",
    "InvalidCapacityReservationIdMalformedException",
    "InvalidCpuCredits.Malformed",
    "InvalidGroupId.Malformed",
    "InvalidIamInstanceProfileArn.Malformed",
    "InvalidKMSKey.InvalidState",
    "InvalidKMSKey.NotFound",
    "InvalidKeyPair.NotFound",
    "InvalidManifest",
    "InvalidNetworkInterface.InUse",
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidPlacementGroup.Unknown",
    "InvalidSecurityGroupId.Malformed",
    "InvalidSnapshot.NotFound",
    "InvalidSnapshotID.Malformed",
    "InvalidSubnetID.Malformed",
    "InvalidTagKey.Malformed",
    "InvalidTenancy",
    "InvalidUserData.Malformed",
    "SecurityGroupLimitExceeded",
    "SecurityGroupsPerInstanceLimitExceeded",
    "SecurityGroupsPerInterfaceLimitExceeded",
    "TagLimitExceeded",
    "UnknownVolumeType",
    "VPCIdNotSpecified",
    "VPCResourceNotSpecified",
    "VolumeIOPSLimit",
    # quotas that every offering meets
    "MaxIOPSLimitExceeded",
    "MaxTemplateLimitExceeded",
    "MaxTemplateVersionLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "PlacementGroupLimitExceeded",
    "ResourceLimitExceeded",
    "VolumeLimitExceeded",
}
"""No other offering mends these: a user must change something."""
CLASSIFIED = CAPACITY | THROTTLED | NOT_FOUND | USED_TOKEN | _CONFIGURATION
"""Every code that a launch is known to fail with. Source: EC2 API Reference, "Error codes for the Amazon EC2 API"."""


def kind(code: str) -> FailureKind:
    """The kind of failure, which says what to do next (:class:`shared.cloud_provider.LaunchFailure`).

    A code that isn't known counts as *capacity*: another offering is tried, rather than the same one for ever.

    >>> kind("InsufficientInstanceCapacity"), kind("InvalidBlockDeviceMapping"), kind("NewCodeOfEC2")
    ('capacity', 'configuration', 'capacity')
    """
    if code in THROTTLED:
        return "throttled"
    if code in NOT_FOUND:
        return "gone"
    return "configuration" if code in _CONFIGURATION | USED_TOKEN else "capacity"


def is_lasting(result: LaunchResult) -> bool:
    """Whether nothing was launched for a reason that isn't a lack of capacity, nor a quota that frees up."""
    return (
        isinstance(result, LaunchFailure) and result.kind == "capacity" and result.reason not in NO_CAPACITY | _QUOTAS
    )


def is_of_vcpu_quota(code: str) -> bool:
    """Whether the error holds for every type of the quota that is as large, or larger.

    >>> is_of_vcpu_quota("VcpuLimitExceeded"), is_of_vcpu_quota("InsufficientInstanceCapacity")
    (True, False)
    """
    return code in _VCPU_QUOTAS


def is_of_capacity_type(code: str) -> bool:
    """Whether the error holds for every offering of the capacity type."""
    return code in _WHOLE_CAPACITY_TYPE


def user_message(code: str, message: str) -> str:
    """One sentence for users: EC2's message, and what to change where that is known."""
    text = message.split(" Encoded authorization failure message", maxsplit=1)[0].strip().rstrip(".") or code
    if code == INVALID_REQUEST:
        return f"the launch's request is invalid, which is a bug of Tenon's; please report it with this text: {text}"
    if code in DENIED and "iam:PassRole" in text:
        return f"EC2 denied the launch ({text}): name the node class's role when deploying, by -c nodeRoles=ROLE"
    if code in DENIED:
        return f"EC2 denied the launch ({text}): the function's role, or a policy above it, lacks that permission"
    hint = _hint(code, text)
    return f"{text}: {hint}" if hint else text


def _hint(code: str, text: str) -> str:
    if code in _QUOTAS:
        return "ask for a higher EC2 quota, or allow other instance types"
    if code == SPOT_ROLE_MISSING:
        return "create the role once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    if code == "InsufficientFreeAddressesInSubnet":
        return "let spec.subnetSelectorTerms select larger subnets"
    lower = f"{code} {text}".lower()
    hints = (
        ("kms", "check spec.blockDeviceMappings[].ebs.kmsKeyID and the key's policy"),
        ("placement group", "check spec.placementGroupSelector"),
        ("instance profile", "check spec.instanceProfile or spec.role"),
    )
    return next((hint for word, hint in hints if word in lower), "")


def is_plan_exhausted(results: Sequence[LaunchResult], plan: FleetPlan) -> bool:
    """Whether NodeClaims got no instance, and errors show every offering of the plan to have no capacity."""
    unavailable = {offering for failure in capacity_failures(results).values() for offering in failure.unavailable}
    return bool(unavailable) and without_unavailable(plan, unavailable) is None


def capacity_failures(results: Sequence[LaunchResult]) -> dict[str, LaunchFailure]:
    """By NodeClaim: the failures for lack of capacity."""
    return {r.claim_name: r for r in results if isinstance(r, LaunchFailure) and r.kind == "capacity"}


def with_retried(results: Sequence[LaunchResult], retried: Mapping[str, LaunchResult]) -> list[LaunchResult]:
    """The results with those of a retry, each with the unavailable offerings of both attempts."""
    merged: list[LaunchResult] = []
    for result in results:
        retry = retried.get(result.claim_name)
        if retry is None:
            merged.append(result)
        else:
            merged.append(with_fields(retry, unavailable=tuple(sorted({*retry.unavailable, *result.unavailable}))))
    return merged
