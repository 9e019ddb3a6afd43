"""The overrides of a CreateFleet call: the instance types and, for each zone, the subnet that EC2 may choose from.

Pure. Which overrides are possible is Karpenter's rule (docs/facts/karpenter.md, section 4). It holds for all NodeClaims
of a launch group, because these have the same requirements. The first request for spot instances has only those of
nearly the least expected price (docs/designs/launches.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.devices import GPU_RESOURCES, NEURON
from shared.api.nodeclass import CAPACITY_BLOCK, INTERRUPTIBLE
from shared.api.quantity import CPU
from shared.base.struct import Struct, with_fields
from shared.instance_types.instance_type import (
    RESERVATION_INTERRUPTIBLE,
    RESERVATION_TYPE,
    ami_for,
    is_bare_metal,
    is_covered,
    is_of_quota,
    meets,
)
from shared.instance_types.interruption_rates import DEFAULT_RATE
from shared.instance_types.spot_risk import price_factor
from shared.scheduling.decision import MAX_INSTANCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.nodeclass import ResolvedAMI
    from shared.instance_types.instance_type import InstanceType, Offering, OfferingKey
    from shared.instance_types.interruption_rates import Pool
    from shared.launch.node_class.subnets import Subnet

LAUNCH_ORDER = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)
"""The order in which capacity types are launched, Karpenter's.

A launch without capacity of one type tries the next, if the NodeClaims allow it.
"""
NARROW_WIDTH = 0.015
"""How much more than the least expected price an override of the first spot request may cost, as a share of it."""

_MILLI = 1000
_RESERVATION_KINDS = ("", CAPACITY_BLOCK, INTERRUPTIBLE)
_EXOTIC_RESOURCES = frozenset({*GPU_RESOURCES.values(), NEURON})


class Override(Struct, kw_only=True):
    """An instance type in a zone, with the subnet and the AMI that it would be launched with."""

    instance_type: InstanceType
    offering: Offering
    subnet: Subnet
    ami: ResolvedAMI

    @property
    def offering_key(self) -> OfferingKey:
        """The offering as unavailable offerings are stored."""
        return (self.offering.capacity_type, self.instance_type.name, self.offering.zone)

    @property
    def vcpus(self) -> int:
        """The vCPUs that EC2's quotas count."""
        return self.instance_type.capacity.get(CPU, 0) // _MILLI


class FleetPlan(Struct, kw_only=True):
    """The overrides of one CreateFleet call, cheapest first, all of one capacity type."""

    capacity_type: str
    overrides: tuple[Override, ...]

    @property
    def reservation_kind(self) -> str:
        """EC2's market type, which all overrides have in common; empty but for special capacity reservations."""
        return reservation_kind(self.overrides[0]) if self.overrides else ""

    @property
    def priorities(self) -> tuple[int, ...]:
        """By override, the rank of its price from 0, equal for equal prices; empty if no NodeOverlay set a price.

        EC2 takes whole numbers, the lowest first (FleetLaunchTemplateOverridesRequest).
        """
        if not any(override.offering.has_overlaid_price for override in self.overrides):
            return ()
        ranks = {price: rank for rank, price in enumerate(sorted({o.offering.price for o in self.overrides}))}
        return tuple(ranks[override.offering.price] for override in self.overrides)

    @property
    def offering_keys(self) -> tuple[OfferingKey, ...]:
        """Every offering of the plan, sorted."""
        return tuple(sorted({override.offering_key for override in self.overrides}))


def plan_fleet(
    instance_types: Sequence[InstanceType],
    requirements: Sequence[NodeSelectorRequirement],
    *,
    amis: Sequence[ResolvedAMI],
    subnets: Mapping[str, Subnet],
    after: str = "",
) -> FleetPlan | None:
    """The overrides for NodeClaims with those requirements; ``subnets`` has one subnet for each zone.

    The first capacity type with an available offering is used, of those tried after ``after``. Spot offerings that
    cost more than the cheapest on-demand offering are left out. None if no available offering meets the requirements.
    """
    overrides = _compatible(instance_types, requirements, amis, subnets)
    if all(r.min_values is None for r in requirements):
        overrides = _without_exotic(overrides)
    by_capacity_type = {c: [p for p in overrides if p.offering.capacity_type == c] for c in LAUNCH_ORDER}
    by_capacity_type[labels.SPOT] = _within_on_demand_price(
        by_capacity_type[labels.SPOT], by_capacity_type[labels.ON_DEMAND]
    )
    by_capacity_type[labels.RESERVED] = _of_one_reservation_kind(by_capacity_type[labels.RESERVED])
    for capacity_type in LAUNCH_ORDER[LAUNCH_ORDER.index(after) + 1 :] if after else LAUNCH_ORDER:
        if by_capacity_type[capacity_type]:
            return FleetPlan(capacity_type=capacity_type, overrides=_cheapest(by_capacity_type[capacity_type]))
    return None


def narrowed(plan: FleetPlan, rates: Mapping[Pool, float], *, interruption_cost: float, at_least: int = 0) -> FleetPlan:
    """The plan with only the spot overrides of nearly the least expected price: within :data:`NARROW_WIDTH` of it.

    The expected price of an hour is the price, plus the interruptions in an hour (``rates`` by pool, else the default)
    times ``interruption_cost`` in USD; at least what decisions add for the pool's risk, so that no node is launched
    that the next decision finds too expensive. The ``at_least`` cheapest overrides stay in any case.

    EC2 chooses by price and capacity among what it is offered, with a weight that it doesn't publish; so the price is
    bounded by what is offered. Plans of other capacity types stay as they are, because EC2 takes the lowest price
    there.
    """
    if plan.capacity_type != labels.SPOT:
        return plan

    def expected_price(override: Override) -> float:
        rate = rates.get((override.instance_type.name, override.offering.zone), DEFAULT_RATE)
        price = override.offering.price
        return price + max(rate * interruption_cost, (price_factor(rate) - 1) * price)

    cheapest = {o.offering_key for o in sorted(plan.overrides, key=expected_price)[:at_least]}
    limit = (1 + NARROW_WIDTH) * min(map(expected_price, plan.overrides))
    overrides = tuple(o for o in plan.overrides if expected_price(o) <= limit or o.offering_key in cheapest)
    return with_fields(plan, overrides=overrides)


def without_unavailable(plan: FleetPlan, unavailable: Collection[OfferingKey]) -> FleetPlan | None:
    """The plan without these offerings, and those of their quotas; None if none remains."""
    marks = tuple(filter(is_of_quota, unavailable))
    remaining = tuple(
        o
        for o in plan.overrides
        if o.offering_key not in unavailable
        and not is_covered(o.offering.capacity_type, o.instance_type.name, o.vcpus, marks)
    )
    return with_fields(plan, overrides=remaining) if remaining else None


def offering_labels(instance_type: InstanceType, offering: Offering) -> dict[str, str]:
    """The labels of a node of that type and offering."""
    return {
        **instance_type.labels,
        labels.ZONE: offering.zone,
        labels.CAPACITY_TYPE: offering.capacity_type,
        **offering.labels,
    }


def reservation_kind(override: Override) -> str:
    """EC2's market type of a capacity reservation whose owner may reclaim it, or of a capacity block; else empty."""
    if override.offering.labels.get(RESERVATION_INTERRUPTIBLE) == "true":
        return INTERRUPTIBLE
    return CAPACITY_BLOCK if override.offering.labels.get(RESERVATION_TYPE) == CAPACITY_BLOCK else ""


def is_exotic(instance_type: InstanceType) -> bool:
    """Whether the type is bare metal or has accelerators."""
    return is_bare_metal(instance_type.name) or any(instance_type.capacity.get(r) for r in _EXOTIC_RESOURCES)


def _compatible(
    instance_types: Sequence[InstanceType],
    requirements: Sequence[NodeSelectorRequirement],
    amis: Sequence[ResolvedAMI],
    subnets: Mapping[str, Subnet],
) -> list[Override]:
    """The available offerings that meet the requirements and have an AMI and a subnet."""
    return [
        Override(instance_type=t, offering=o, subnet=subnets[o.zone], ami=ami)
        for t in instance_types
        if (ami := ami_for(t.labels, amis)) is not None
        for o in t.offerings
        if o.available and o.zone in subnets and meets(offering_labels(t, o), requirements)
    ]


def _of_one_reservation_kind(reserved: list[Override]) -> list[Override]:
    """The overrides of the first market that has some, since a call has one: those that nobody reclaims come first.

    EC2 takes one capacity block in a call, so only the first is left.
    """
    by_kind = {name: [p for p in reserved if reservation_kind(p) == name] for name in _RESERVATION_KINDS}
    chosen = next((name for name in _RESERVATION_KINDS if by_kind[name]), "")
    return by_kind[chosen][:1] if chosen == CAPACITY_BLOCK else by_kind[chosen]


def _within_on_demand_price(spot: list[Override], on_demand: list[Override]) -> list[Override]:
    """The spot overrides that cost no more than the cheapest on-demand override."""
    cheapest = min((p.offering.effective_price for p in on_demand), default=float("inf"))
    return [p for p in spot if p.offering.effective_price <= cheapest]


def _without_exotic(overrides: list[Override]) -> list[Override]:
    """The overrides without exotic types, unless the requirements leave no others."""
    generic = [p for p in overrides if not is_exotic(p.instance_type)]
    return generic or overrides


def _cheapest(overrides: Iterable[Override]) -> tuple[Override, ...]:
    """The overrides of the cheapest instance types, as many types as Karpenter sends, cheapest first."""
    ordered = sorted(overrides, key=lambda p: (p.offering.effective_price, p.instance_type.name, p.offering.zone))
    names = frozenset(list(dict.fromkeys(p.instance_type.name for p in ordered))[:MAX_INSTANCE_TYPES])
    # EC2 takes a type in a zone once, so of several capacity reservations for it only the first can be used.
    first = {(p.instance_type.name, p.offering.zone): p for p in reversed(ordered) if p.instance_type.name in names}
    return tuple(p for p in ordered if first.get((p.instance_type.name, p.offering.zone)) is p)
