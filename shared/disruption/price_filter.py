"""The price filter for replacements: which instance types a replacement may keep so that it saves money in any case.

CreateFleet chooses among a claim's types by capacity as well as by price. A type is kept only if its most expensive
allowed offering is within the price limit. Replacing one spot node by another needs at least 15 types, or each
replacement would be likelier to be interrupted than the node it replaces (Karpenter's rule).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.kubernetes import NodeSelectorRequirement
from shared.base.struct import with_fields
from shared.scheduling.rules.requirements import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim

MIN_SPOT_INSTANCE_TYPES = 15
"""How many types a spot-to-spot replacement of one node needs at least. Source: Karpenter."""


def highest_prices(claim: PlannedNodeClaim, types: Iterable[InstanceType]) -> Mapping[str, float]:
    """By instance type of the claim: USD per hour of its most expensive available offering that the claim allows.

    Only offerings of the claim's cheapest capacity type count, because :func:`filter_by_price` pins that type.
    """
    listed = set(claim.instance_types)
    required = {k: v for k, v in parse(claim.requirements).items() if k in {names.ZONE, names.CAPACITY_TYPE}}
    capacity_type = claim.cheapest.capacity_type
    highest: dict[str, float] = {}
    for instance_type in types:
        if instance_type.name not in listed:
            continue
        prices = [
            o.effective_price
            for o in instance_type.offerings
            if o.available
            and o.capacity_type == capacity_type
            and (names.ZONE not in required or required[names.ZONE].has(o.zone))
            and (names.CAPACITY_TYPE not in required or required[names.CAPACITY_TYPE].has(o.capacity_type))
        ]
        if prices:
            highest[instance_type.name] = max(prices)
    return highest


def filter_by_price(claim: PlannedNodeClaim, types: tuple[InstanceType, ...], limit: float) -> PlannedNodeClaim | None:
    """The claim with its capacity type pinned and only types that cost at most ``limit`` (USD per hour).

    None when no type remains, or too few for the pool's minValues or spot diversity.
    """
    prices = highest_prices(claim, types)
    remaining = tuple(name for name in claim.instance_types if prices.get(name, float("inf")) <= limit)
    if not remaining or len(remaining) < claim.min_types:
        return None
    by_name = {t.name: t for t in types}
    if not claim.min_values_relaxed:
        for requirement in claim.requirements:
            min_values = requirement.min_values
            if min_values is not None and _value_count(requirement.key, remaining, by_name, claim) < min_values:
                return None
    requirements = [
        with_fields(r, values=list(remaining)) if r.key == names.INSTANCE_TYPE and r.operator == "In" else r
        for r in claim.requirements
        if r.key != names.CAPACITY_TYPE
    ]
    requirements.append(
        NodeSelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=[claim.cheapest.capacity_type])
    )
    return with_fields(claim, instance_types=remaining, requirements=tuple(requirements))


def _value_count(key: str, remaining: Iterable[str], types: Mapping[str, InstanceType], claim: PlannedNodeClaim) -> int:
    """How many values of the label the remaining types have."""
    match key:
        case names.INSTANCE_TYPE:
            return len(set(remaining))
        case names.CAPACITY_TYPE:
            return 1
        case names.ZONE:
            capacity_type = claim.cheapest.capacity_type
            offerings = (o for name in remaining for o in types[name].offerings)
            return len({o.zone for o in offerings if o.available and o.capacity_type == capacity_type})
        case _:
            return len({types[name].labels[key] for name in remaining if key in types[name].labels})
