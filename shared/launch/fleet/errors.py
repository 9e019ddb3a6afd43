"""What EC2's error codes mean for a launch: no capacity, too many calls, gone, or something that a person must mend.

Source of the capacity codes: docs/facts/karpenter.md section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.cloud_provider import FailureKind


CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    }
)
THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "Unavailable",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
    }
)
TEMPLATE_GONE = frozenset(
    {
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
    }
)
GONE = TEMPLATE_GONE | {
    "InvalidSubnetID.NotFound",
    "InvalidSubnetId.NotFound",
    "InvalidGroup.NotFound",
    "InvalidGroupId.NotFound",
    "InvalidAMIID.NotFound",
    "InvalidAMIID.Unavailable",
}
"""What the class resolved to a moment ago isn't there any more: look again."""

MISMATCH = "IdempotentParameterMismatch"

DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})


def kind(code: str) -> FailureKind:
    """What to do about the error: launch elsewhere, wait, look again, or tell a person."""
    if code in CAPACITY:
        return "capacity"
    if code in THROTTLED:
        return "throttled"
    return "gone" if code in GONE else "configuration"


def advice(code: str, message: str) -> str:
    """One sentence for a person: what EC2 said, and what to change where that is known."""
    said = message.split(" Encoded authorization failure message", maxsplit=1)[0].strip().rstrip(".") or code
    if code in DENIED and "iam:PassRole" in said:
        return f"EC2 denied the launch ({said}): name the node class's role when deploying, by -c nodeRoles=ROLE"
    if code in DENIED:
        return f"EC2 denied the launch ({said}): the function's role, or a policy above it, lacks that permission"
    hint = _hint(code, said)
    return f"{said}: {hint}" if hint else said


def _hint(code: str, said: str) -> str:
    """What to look at; "" where that isn't known."""
    if code in {"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"}:
        return "ask for a higher EC2 quota, or allow other instance types"
    if code == "InsufficientFreeAddressesInSubnet":
        return "let spec.subnetSelectorTerms select larger subnets"
    text = f"{code} {said}".lower()
    hints = (
        ("kms", "check spec.blockDeviceMappings[].ebs.kmsKeyID and the key's policy"),
        ("placement group", "check spec.placementGroupSelector"),
        ("instance profile", "check spec.instanceProfile or spec.role"),
    )
    return next((hint for word, hint in hints if word in text), "")
