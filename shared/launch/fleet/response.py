"""CreateFleet's response, read by the plan that was requested.

EC2 names the override that an instance or an error belongs to. Some errors name less, and then apply to every override
that agrees with what they name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.launch.fleet import errors
from shared.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.instance_types.instance_type import OfferingKey
    from shared.launch.fleet.overrides import FleetPlan, Override

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
    overrides = _matching_overrides(entry, plan)
    if code == _FULL_SUBNET:
        full = {override.subnet.id for override in overrides}
        overrides = [override for override in plan.overrides if override.subnet.id in full]
    return tuple(override.offering_key for override in overrides)
