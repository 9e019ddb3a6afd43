"""EC2's error codes of CreateFleet: what kind of failure each is, what to tell the user, and when to retry.

Source of the capacity codes: docs/facts/karpenter.md, section 4.

After insufficient capacity, the NodeClaims without an instance are launched by the next capacity type only when every
offering of the plan has no capacity: scheduling again would find dearer offerings of the same capacity type. Otherwise
the NodeClaims fail, and their pods are scheduled again without the unavailable offerings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.cloud_provider import LaunchFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.cloud_provider import FailureKind, LaunchResult
    from shared.launch.fleet.overrides import FleetPlan


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
LAUNCH_TEMPLATE_NOT_FOUND = frozenset(
    {
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
    }
)
NOT_FOUND = LAUNCH_TEMPLATE_NOT_FOUND | {
    "InvalidSubnetID.NotFound",
    "InvalidSubnetId.NotFound",
    "InvalidGroup.NotFound",
    "InvalidGroupId.NotFound",
    "InvalidAMIID.NotFound",
    "InvalidAMIID.Unavailable",
}
"""Something that the node class's status names was deleted: resolve the class again."""

INSTANCE_TERMINATED = "IdempotentInstanceTerminated"
USED_TOKEN = frozenset({"IdempotentParameterMismatch", INSTANCE_TERMINATED})
"""The ClientToken was used before: by a request that differed, or for an instance that is terminated now. The group's
instances are listed, and those that have ended are launched by another token."""
INVALID_REQUEST = "InvalidRequest"
"""botocore refused to send the request: a bug of Tenon's, which no retry mends."""

DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})


class CreateFleetError(Exception):
    """EC2 rejected a whole CreateFleet call, or the rate limit did; ``code`` and ``message`` are EC2's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def kind(code: str) -> FailureKind:
    """The kind of failure, which says what to do next (:class:`shared.cloud_provider.LaunchFailure`)."""
    if code in CAPACITY:
        return "capacity"
    if code in THROTTLED:
        return "throttled"
    return "gone" if code in NOT_FOUND else "configuration"


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
    if code in {"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"}:
        return "ask for a higher EC2 quota, or allow other instance types"
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
    return bool(unavailable) and unavailable >= set(plan.offering_keys)


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
            merged.append(replace(retry, unavailable=tuple(sorted({*retry.unavailable, *result.unavailable}))))
    return merged
