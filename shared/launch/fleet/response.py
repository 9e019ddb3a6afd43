"""CreateFleet's response, read by the plan that was requested, and its instances assigned to NodeClaims.

EC2 names the override that an instance or an error belongs to. Some errors name less, and then apply to every override
that agrees with what they name.

The ``karpenter.sh/nodeclaim`` tag says which NodeClaim of a launch group an instance belongs to. A call for one
NodeClaim tags its instance at the launch. The instances of a call for several are assigned in order of
instance id to NodeClaims in order of uid, and tagged then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from msgspec.structs import replace

from shared.api import labels, nodeclaim
from shared.api.meta import EventReason
from shared.api.nodeclass import ResolvedAMI
from shared.base import aws, runtime
from shared.base.aws import error_code
from shared.base.struct import Struct
from shared.cloud_provider import LaunchedInstance, LaunchFailure, provider_id
from shared.launch.fleet import errors
from shared.launch.fleet.overrides import Override, offering_labels
from shared.launch.launch_template import tag_list
from shared.launch.node_class.subnets import Subnet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_ec2.type_defs import TagTypeDef

    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import FailureKind, Instance, LaunchRequest, LaunchResult
    from shared.instance_types.instance_type import OfferingKey
    from shared.launch.fleet.overrides import FleetPlan
    from shared.launch.fleet.request import FleetRequest


_UNKNOWN_INSTANCE = "InvalidInstanceID.NotFound"
_TAG_RETRY_DELAYS = (0.25, 0.5, 1.0, 2.0, 3.0)
"""Seconds before a new instance is tagged again."""
_FULL_SUBNET = "InsufficientFreeAddressesInSubnet"


class FleetError(Struct):
    """One error of the response: EC2's code and message, and the offerings that it shows to have no capacity."""

    code: str
    message: str
    unavailable: tuple[OfferingKey, ...] = ()


class FleetResponse(Struct):
    """Instance ids, each with the override it was launched by, and the errors."""

    launched: tuple[tuple[str, Override], ...] = ()
    errors: tuple[FleetError, ...] = ()

    @property
    def launch_template_not_found(self) -> bool:
        """Whether nothing was launched because a launch template was deleted."""
        return not self.launched and any(e.code in errors.LAUNCH_TEMPLATE_NOT_FOUND for e in self.errors)

    @property
    def throttled(self) -> bool:
        """Whether nothing was launched, and only because of throttling."""
        return not self.launched and {errors.kind(e.code) for e in self.errors} == {"throttled"}

    @property
    def token_is_used(self) -> bool:
        """Whether nothing was launched because the ClientToken's instances are terminated."""
        return not self.launched and any(e.code in errors.USED_TOKEN for e in self.errors)

    @property
    def unavailable(self) -> tuple[OfferingKey, ...]:
        """Every offering that an error shows to have no capacity."""
        return tuple(sorted({key for e in self.errors for key in e.unavailable}))


def read_response(response: Mapping[str, Any], plan: FleetPlan) -> FleetResponse:
    """The response of CreateFleet to a request made by the plan."""
    return FleetResponse(
        launched=tuple(
            (instance_id, overrides[0])
            for entry in response.get("Instances", [])
            if (overrides := _matching_overrides(entry, plan))
            for instance_id in entry.get("InstanceIds", [])
        ),
        errors=tuple(
            FleetError(entry.get("ErrorCode", ""), entry.get("ErrorMessage", ""), _unavailable(entry, plan))
            for entry in response.get("Errors", [])
        ),
    )


def rejected_call(code: str, message: str, plan: FleetPlan) -> FleetResponse:
    """The response that a rejected call stands for: the error names no offering, so it holds for all of the plan's."""
    return FleetResponse(errors=(FleetError(code, message, _unavailable({"ErrorCode": code}, plan)),))


def _matching_overrides(entry: Mapping[str, Any], plan: FleetPlan) -> Sequence[Override]:
    """The overrides that agree with everything that an instance or an error names."""
    named = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    type_name = named.get("InstanceType", entry.get("InstanceType", ""))
    subnet_id, zone = named.get("SubnetId", ""), named.get("AvailabilityZone", "")
    return [
        override
        for override in plan.overrides
        if type_name in {"", override.instance_type.name}
        and (subnet_id == override.subnet.id if subnet_id else zone in {"", override.offering.zone})
    ]


def _unavailable(entry: Mapping[str, Any], plan: FleetPlan) -> tuple[OfferingKey, ...]:
    code = entry.get("ErrorCode", "")
    if errors.kind(code) != "capacity":
        return ()
    if errors.is_of_capacity_type(code):
        return plan.offering_keys
    overrides = _matching_overrides(entry, plan)
    if code == _FULL_SUBNET:
        full = {override.subnet.id for override in overrides}
        overrides = [override for override in plan.overrides if override.subnet.id in full]
    return tuple(override.offering_key for override in overrides)


def assign_response(
    fleet_request: FleetRequest, plan: FleetPlan, response: FleetResponse, requests: Sequence[LaunchRequest]
) -> list[LaunchResult]:
    """Assign the launched instances; NodeClaims beyond them failed. Errors' offerings are on every result."""
    results: list[LaunchResult] = []
    launched = sorted(response.launched, key=lambda pair: pair[0])[: len(requests)]
    already_tagged = len(requests) == 1
    for request, (instance_id, override) in zip(requests, launched, strict=False):
        result = _assign(fleet_request, request.claim, instance_id, override, already_tagged=already_tagged)
        if isinstance(result, LaunchedInstance):
            result = replace(result, unavailable=response.unavailable)
        results.append(result)
    return results + [_not_launched(r.claim, response, plan) for r in requests[len(launched) :]]


def assign_existing(fleet_request: FleetRequest, request: LaunchRequest, instance: Instance) -> LaunchResult:
    """Assign an instance of the launch group that an earlier call launched."""
    override = _override_of(request, instance)
    if override is None:
        message = f"instance {instance.id} is a {instance.type} in {instance.zone}, which the NodeClaim doesn't allow"
        return failure(request.claim, "gone", EventReason("InstanceTypeUnknown"), message)
    already_tagged = instance.tags.get(labels.NODECLAIM_TAG) == request.claim.name
    return _assign(fleet_request, request.claim, instance.id, override, already_tagged=already_tagged)


def failure(
    claim: NodeClaim, kind: FailureKind, reason: str, message: str, unavailable: tuple[OfferingKey, ...] = ()
) -> LaunchFailure:
    """A failure whose reason is the last part of EC2's code, so that it can be an event's reason."""
    camel_case = "".join(c for c in reason.rpartition(".")[2] if c.isalnum()) or EventReason("LaunchFailed")
    return LaunchFailure(claim_name=claim.name, kind=kind, reason=camel_case, message=message, unavailable=unavailable)


def _assign(
    fleet_request: FleetRequest, claim: NodeClaim, instance_id: str, override: Override, *, already_tagged: bool
) -> LaunchResult:
    if not already_tagged:
        try:
            _tag(instance_id, tag_list(fleet_request.nodeclaim_tags(claim)))
        except ClientError as error:
            # The instance runs. Launching again would launch a second one.
            message = f"instance {instance_id} can't be tagged: {error.response['Error'].get('Message', '')}"
            return failure(claim, "unconfirmed", nodeclaim.LAUNCH_UNCONFIRMED, message)
    offering, instance_type = override.offering, override.instance_type
    return LaunchedInstance(
        claim_name=claim.name,
        instance_id=instance_id,
        provider_id=provider_id(offering.zone, instance_id),
        instance_type=instance_type.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        image_id=override.ami.id,
        price=offering.price,
        capacity=dict(instance_type.capacity),
        allocatable=dict(instance_type.allocatable),
        labels=offering_labels(instance_type, offering),
    )


def _tag(instance_id: str, tags: list[TagTypeDef]) -> None:
    """Tag an instance that was just launched, which EC2 may not know for some seconds.

    Raises:
        ClientError: EC2 still doesn't know the instance, or refused.
    """
    for delay in (*_TAG_RETRY_DELAYS, None):
        try:
            aws.ec2().create_tags(Resources=[instance_id], Tags=tags)
        except ClientError as error:
            if error_code(error) != _UNKNOWN_INSTANCE or delay is None:
                raise
            runtime.current().sleep(delay)
        else:
            return


def _not_launched(claim: NodeClaim, response: FleetResponse, plan: FleetPlan) -> LaunchFailure:
    """The failure of a NodeClaim without an instance: the first error that isn't about capacity, else capacity."""
    for error in response.errors:
        if (kind := errors.kind(error.code)) != "capacity":
            return failure(claim, kind, error.code, errors.user_message(error.code, error.message))
    unavailable = response.unavailable
    if not response.launched and not unavailable:
        unavailable = plan.offering_keys
    error = response.errors[0] if response.errors else FleetError("UnfulfillableCapacity", "")
    details = f": {errors.user_message(error.code, error.message)}" if error.message else ""
    none = "has no {} capacity for" if error.code in errors.NO_CAPACITY else "launches no {} instance of"
    message = f"EC2 {none.format(plan.capacity_type)} {_first_few(unavailable)}{details}"
    return failure(claim, "capacity", error.code, message, unavailable)


def _first_few(offerings: Sequence[OfferingKey]) -> str:
    named = [f"{instance_type} in {zone}" for _, instance_type, zone in offerings[:3]]
    return ", ".join(named) + (f" and {len(offerings) - len(named)} more" if len(offerings) > len(named) else "")


def _override_of(request: LaunchRequest, instance: Instance) -> Override | None:
    """The instance's type and offering, as the request knows them.

    An open capacity reservation may have taken in an on-demand instance, so the capacity type is only preferred.
    """
    candidates = [
        (t, o)
        for t in request.instance_types
        for o in t.offerings
        if t.name == instance.type and o.zone == instance.zone
    ]
    if not candidates:
        return None
    instance_type, offering = min(candidates, key=lambda pair: pair[1].capacity_type != instance.capacity_type)
    return Override(
        instance_type=instance_type,
        offering=offering,
        subnet=Subnet(instance.subnet_id, instance.zone, "", 0),
        ami=ResolvedAMI(id=instance.image_id),
    )
