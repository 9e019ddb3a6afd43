"""What one CreateFleet call came to, in terms of the plan that it was asked with.

EC2 names the override that an instance or an error belongs to; some errors name less, and then speak for all overrides
that they could mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.launch.fleet import errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.instance_types.instance_type import OfferingKey
    from shared.launch.fleet.overrides import Choice, Plan

_FULL_SUBNET = "InsufficientFreeAddressesInSubnet"


@dataclass(frozen=True)
class Refusal:
    """One error of the answer: EC2's code and message, and the offerings that it shows to have no capacity."""

    code: str
    message: str
    lacking: tuple[OfferingKey, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Instance ids, each with the choice it was made of, and the errors."""

    launched: tuple[tuple[str, Choice], ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def template_gone(self) -> bool:
        """Whether nothing was launched because a launch template isn't there any more."""
        return not self.launched and any(r.code in errors.TEMPLATE_GONE for r in self.refusals)

    @property
    def transient(self) -> bool:
        """Whether nothing was launched only because EC2 was too busy."""
        kinds = {errors.kind(r.code) for r in self.refusals}
        return not self.launched and kinds == {"throttled"}

    @property
    def lacking(self) -> tuple[OfferingKey, ...]:
        """Every offering that an error shows to have no capacity."""
        return tuple(sorted({key for r in self.refusals for key in r.lacking}))


def read(answer: Mapping[str, Any], wanted: Plan) -> Answer:
    """The answer of CreateFleet to a call made by the plan."""
    launched = tuple(
        (instance_id, choices[0])
        for entry in answer.get("Instances", [])
        if (choices := _meant(entry, wanted))
        for instance_id in entry.get("InstanceIds", [])
    )
    refusals = tuple(
        Refusal(entry.get("ErrorCode", ""), entry.get("ErrorMessage", ""), _lacking(entry, wanted))
        for entry in answer.get("Errors", [])
    )
    return Answer(launched=launched, refusals=refusals)


def key(choice: Choice) -> OfferingKey:
    """The offering of a choice, as unavailable offerings are kept."""
    return (choice.offering.capacity_type, choice.instance_type.name, choice.offering.zone)


def _meant(entry: Mapping[str, Any], wanted: Plan) -> Sequence[Choice]:
    """The choices that an instance or an error may belong to: those that agree with all that it names."""
    named = entry.get("LaunchTemplateAndOverrides", {})
    override = named.get("Overrides", {})
    name = override.get("InstanceType", entry.get("InstanceType", ""))
    subnet, zone = override.get("SubnetId", ""), override.get("AvailabilityZone", "")
    return [
        choice
        for choice in wanted.choices
        if name in {"", choice.instance_type.name}
        and (subnet == choice.subnet.id if subnet else zone in {"", choice.offering.zone})
    ]


def _lacking(entry: Mapping[str, Any], wanted: Plan) -> tuple[OfferingKey, ...]:
    code = entry.get("ErrorCode", "")
    if errors.kind(code) != "capacity":
        return ()
    meant = _meant(entry, wanted)
    if code == _FULL_SUBNET:
        full = {choice.subnet.id for choice in meant}
        meant = [choice for choice in wanted.choices if choice.subnet.id in full]
    return tuple(key(choice) for choice in meant)
