"""CreateFleet: the calls of one run, their responses, and the launched instances as those of NodeClaims.

Errors become a response where the next call can do something about them; others are raised. EC2 names the override that
an instance or an error belongs to. Some errors name less, and then apply to every override that agrees with what they
name.

The ``karpenter.sh/nodeclaim`` tag says which NodeClaim of a launch group an instance belongs to. A call for one
NodeClaim tags its instance at the launch. The instances of a call for several are assigned in order of instance id to
NodeClaims in order of uid; what is assigned is on the NodeClaims. They are tagged later, by the lifecycle function:
each has tags of its own, CreateTags takes 0.3 s, and EC2 allows ten a second, so a launch of hundreds would take longer
than the invocation may.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
from botocore.exceptions import ClientError

from shared.api.meta import EventReason
from shared.api.nodeclass import ResolvedAMI
from shared.base.aws import error_code
from shared.base.struct import Struct, with_fields
from shared.cloud_provider import LaunchedInstance, LaunchFailure, provider_id
from shared.instance_types.instance_type import beyond_quota, is_of_quota, quota_of
from shared.launch import launch_template
from shared.launch.fleet import errors
from shared.launch.fleet.overrides import Override, offering_labels
from shared.launch.node_class import subnets
from shared.launch.node_class.subnets import Subnet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import ResolvedSubnet
    from shared.base.runtime import Runtime
    from shared.cloud_provider import FailureKind, Instance, LaunchRequest, LaunchResult
    from shared.instance_types.instance_type import OfferingKey
    from shared.launch.clients import LaunchClients
    from shared.launch.fleet.overrides import FleetPlan
    from shared.launch.fleet.rate_limit import RateLimiter
    from shared.launch.fleet.request import FleetRequest, TemplateKey
    from shared.launch.launch_template import LaunchTemplate


_FULL_SUBNET = "InsufficientFreeAddressesInSubnet"


class CreateFleetError(Exception):
    """EC2 rejected a whole CreateFleet call, or the rate limit did; ``code`` and ``message`` are EC2's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FleetCalls(Struct, kw_only=True):
    """Calls CreateFleet for the launch groups of a run, from several threads.

    A call waits for the ``rate_limiter`` until the ``deadline``. ``addresses`` are those that the run may take, by
    subnet id. ``recorded`` reads the ids of the instances that NodeClaims have, by NodeClaim.
    """

    clients: LaunchClients
    runtime: Runtime
    rate_limiter: RateLimiter | None
    deadline: datetime
    recorded: Callable[[], Mapping[str, str]]
    addresses: Counter[str] = msgspec.field(default_factory=Counter)
    lock: Lock = msgspec.field(default_factory=Lock)

    def best_subnets(self, selected: Sequence[ResolvedSubnet]) -> dict[str, Subnet]:
        """By zone: the subnet with the most addresses that are free and not reserved."""
        unknown = tuple(Subnet(s.id, s.zone, s.zone_id, 0) for s in selected)
        by_zone = {subnet.zone: subnet for subnet in unknown}
        if len(by_zone) == len(unknown):  # nothing to choose
            return by_zone
        free = subnets.with_free_addresses(self.clients.ec2(), unknown)
        with self.lock:
            return subnets.best(free, self.addresses)

    def create(
        self, fleet_request: FleetRequest, plan: FleetPlan, requests: Sequence[LaunchRequest], *, step: str
    ) -> FleetResponse:
        """One CreateFleet call, and another if a launch template was deleted.

        Raises:
            CreateFleetError: EC2 rejected the call, or the rate limit did.
            UserDataError: the class's user data can't be merged.
            ClientError: EC2 rejected a launch template.
        """
        self._reserve(plan, len(requests))
        templates = self._launch_templates(fleet_request, plan)
        response = self._call(fleet_request, plan, requests, templates, step)
        if response.launch_template_not_found:
            launch_template.forget(self.runtime, [t.name for t in templates.values()])
            templates = self._launch_templates(fleet_request, plan)
            response = self._call(fleet_request, plan, requests, templates, f"{step}/template made again")
        return response

    def _reserve(self, plan: FleetPlan, count: int) -> None:
        """Reserve that many addresses in each subnet of the plan."""
        with self.lock:
            for subnet_id in {override.subnet.id for override in plan.overrides}:
                self.addresses[subnet_id] += count

    def _launch_templates(self, fleet_request: FleetRequest, plan: FleetPlan) -> dict[TemplateKey, LaunchTemplate]:
        """The launch templates of the plan, created if they don't exist."""
        templates = fleet_request.launch_templates(plan)
        for template in templates.values():
            launch_template.ensure(self.clients.ec2(), self.runtime, template, cluster=fleet_request.cluster.name)
        return templates

    def _call(
        self,
        fleet_request: FleetRequest,
        plan: FleetPlan,
        requests: Sequence[LaunchRequest],
        templates: Mapping[TemplateKey, LaunchTemplate],
        step: str,
    ) -> FleetResponse:
        now, sleep = self.runtime.now, self.runtime.sleep
        if self.rate_limiter and not self.rate_limiter.acquire(self.deadline, now=now, sleep=sleep):
            raise CreateFleetError("RequestLimitExceeded", "the cluster's own rate limit of CreateFleet is reached")
        try:
            parameters = fleet_request.parameters(plan, [r.claim for r in requests], templates, step=step)
            response = self.clients.ec2_without_retries().create_fleet(**parameters)
        except ClientError as error:
            code = error_code(error)
            message = error.response["Error"].get("Message", "")
            if code in errors.LAUNCH_TEMPLATE_NOT_FOUND or errors.kind(code) == "capacity":
                return rejected_call(code, message, plan)
            if self.rate_limiter is not None and errors.kind(code) == "throttled":
                self.rate_limiter.throttled(now=now())
            if code in errors.DENIED:
                # A policy with conditions on a template's tags also denies a template that was deleted.
                launch_template.forget(self.runtime, [t.name for t in templates.values()])
            raise CreateFleetError(code, message) from error
        return read_response(response, plan)


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
    keys = tuple(override.offering_key for override in overrides)
    return (*keys, *_beyond_quota(overrides)) if errors.is_of_vcpu_quota(code) else keys


def _beyond_quota(overrides: Sequence[Override]) -> tuple[OfferingKey, ...]:
    """What the quota of the overrides has no room for; nothing if it isn't plain which quota it is."""
    if len({quota_of(override.instance_type.name) for override in overrides}) != 1:
        return ()
    smallest = min(overrides, key=lambda override: override.vcpus)
    return (beyond_quota(smallest.offering.capacity_type, smallest.instance_type.name, smallest.vcpus),)


def assign_response(plan: FleetPlan, response: FleetResponse, requests: Sequence[LaunchRequest]) -> list[LaunchResult]:
    """Assign the launched instances; NodeClaims beyond them failed. Errors' offerings are on every result."""
    launched = sorted(response.launched, key=lambda pair: pair[0])[: len(requests)]
    results: list[LaunchResult] = [
        with_fields(_assign(request.claim, instance_id, override), unavailable=response.unavailable)
        for request, (instance_id, override) in zip(requests, launched, strict=False)
    ]
    return results + [_not_launched(r.claim, response, plan) for r in requests[len(launched) :]]


def assign_existing(request: LaunchRequest, instance: Instance) -> LaunchResult:
    """Assign an instance of the launch group that an earlier call launched."""
    override = _override_of(request, instance)
    if override is None:
        message = f"instance {instance.id} is a {instance.type} in {instance.zone}, which the NodeClaim doesn't allow"
        return failure(request.claim, "gone", EventReason("InstanceTypeUnknown"), message)
    return _assign(request.claim, instance.id, override)


def in_order_of_launch(
    results: Sequence[LaunchResult], requests: Sequence[LaunchRequest], assigned: Collection[str]
) -> list[LaunchResult]:
    """The launched instances in order of id, for the NodeClaims in the order of the requests.

    Another run that lists the instances of several calls assigns the same. The NodeClaims in ``assigned`` keep theirs.
    """
    launched = {r.claim_name: r for r in results if isinstance(r, LaunchedInstance) and r.claim_name not in assigned}
    in_order = sorted(launched.values(), key=lambda r: r.instance_id)
    names = [r.claim.name for r in requests if r.claim.name in launched]
    moved = {name: with_fields(result, claim_name=name) for name, result in zip(names, in_order, strict=True)}
    return [moved.get(r.claim_name, r) for r in results]


def failure(
    claim: NodeClaim, kind: FailureKind, reason: str, message: str, unavailable: tuple[OfferingKey, ...] = ()
) -> LaunchFailure:
    """A failure whose reason is the last part of EC2's code, so that it can be an event's reason."""
    camel_case = "".join(c for c in reason.rpartition(".")[2] if c.isalnum()) or EventReason("LaunchFailed")
    return LaunchFailure(claim_name=claim.name, kind=kind, reason=camel_case, message=message, unavailable=unavailable)


def _assign(claim: NodeClaim, instance_id: str, override: Override) -> LaunchedInstance:
    """The instance as the NodeClaim's."""
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
    offerings = [offering for offering in offerings if not is_of_quota(offering)]
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
