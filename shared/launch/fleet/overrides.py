"""What to ask CreateFleet for: the capacity type, the instance types and the subnet of each zone.

Pure. The rules are Karpenter's (docs/facts/karpenter.md section 4); they hold for the claims of one group together,
because these ask for the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api import labels
from shared.instance_types.allocatable import GPU_RESOURCES, NEURON
from shared.instance_types.compatibility import ami_for, meets
from shared.scheduling.decision import MAX_INSTANCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.nodeclass import ResolvedAMI
    from shared.instance_types.instance_type import InstanceType, Offering
    from shared.launch.node_class.subnets import Subnet

CAPACITY_TYPES = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)
"""In the order in which they are tried."""

_EXOTIC = frozenset({*GPU_RESOURCES.values(), NEURON})


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A type in a zone: one override of the CreateFleet call."""

    instance_type: InstanceType
    offering: Offering
    subnet: Subnet
    image: ResolvedAMI


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One CreateFleet call's choices, cheapest first, all of one capacity type."""

    capacity_type: str
    choices: tuple[Choice, ...]


def plan(
    instance_types: Sequence[InstanceType],
    requirements: Sequence[NodeSelectorRequirement],
    *,
    images: Sequence[ResolvedAMI],
    subnets: Mapping[str, Subnet],
    after: str = "",
) -> Plan | None:
    """The choices for claims with those requirements; ``subnets`` is the best one of each zone.

    ``after``: only capacity types that are tried after that one.

    None if nothing that is available meets the requirements.
    """
    pairs = [
        Choice(instance_type=t, offering=o, subnet=subnets[o.zone], image=image)
        for t in instance_types
        if (image := ami_for(t.labels, images)) is not None
        for o in t.offerings
        if o.available and o.zone in subnets and meets(offering_labels(t, o), requirements)
    ]
    pairs = _plain(pairs) if all(r.min_values is None for r in requirements) else pairs
    by_capacity_type = {c: [p for p in pairs if p.offering.capacity_type == c] for c in CAPACITY_TYPES}
    on_demand = [p.offering.price for p in by_capacity_type[labels.ON_DEMAND]]
    if on_demand:
        cheapest = min(on_demand)
        spot = by_capacity_type[labels.SPOT]
        by_capacity_type[labels.SPOT] = [p for p in spot if p.offering.price <= cheapest]
    left = CAPACITY_TYPES[CAPACITY_TYPES.index(after) + 1 :] if after else CAPACITY_TYPES
    for capacity_type in left:
        if found := by_capacity_type[capacity_type]:
            return Plan(capacity_type=capacity_type, choices=_cheapest(found))
    return None


def offering_labels(instance_type: InstanceType, offering: Offering) -> dict[str, str]:
    """The labels of a node of the type bought so."""
    return {
        **instance_type.labels,
        labels.ZONE: offering.zone,
        labels.CAPACITY_TYPE: offering.capacity_type,
        **offering.labels,
    }


def _plain(pairs: list[Choice]) -> list[Choice]:
    """Without bare metal and accelerators, unless nothing else is left: they are asked for then."""
    plain = [p for p in pairs if not is_exotic(p.instance_type)]
    return plain or pairs


def is_exotic(instance_type: InstanceType) -> bool:
    """Whether the type costs more for something that no plain pod uses."""
    return "metal" in instance_type.name or any(instance_type.capacity.get(r) for r in _EXOTIC)


def _cheapest(pairs: Iterable[Choice]) -> tuple[Choice, ...]:
    ordered = sorted(pairs, key=lambda p: (p.offering.price, p.instance_type.name, p.offering.zone))
    types = list(dict.fromkeys(p.instance_type.name for p in ordered))[:MAX_INSTANCE_TYPES]
    kept = frozenset(types)
    # EC2 takes a type in a zone once, so of several capacity reservations for it only the first can be asked for.
    pools = {(p.instance_type.name, p.offering.zone): p for p in reversed(ordered) if p.instance_type.name in kept}
    return tuple(p for p in ordered if pools.get((p.instance_type.name, p.offering.zone)) is p)
