"""Which of the types that a planned replacement lists it may keep, so that whatever EC2 gives is a saving.

The launch picks among a claim's types by capacity as well as by price, so a type stays only if its dearest allowed
offering is within the claim's share of what may be spent. Spot for spot on one node needs enough types left, or each
replacement would be likelier to be taken back than what it replaced (Karpenter's rule: 15).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from shared.api import labels as names
from shared.api.kubernetes import NodeSelectorRequirement
from shared.scheduling.rules.requirements import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim

MIN_SPOT_INSTANCE_TYPES = 15


def highest_prices(claim: PlannedNodeClaim, types: Iterable[InstanceType]) -> Mapping[str, float]:
    """By type that the claim lists: USD per hour of its dearest offering that the claim allows and that is available.

    Only offerings of the claim's cheapest capacity type count, because :func:`filter_by_price` asks for no other.
    """
    listed = set(claim.instance_types)
    wanted = {k: v for k, v in parse(claim.requirements).items() if k in {names.ZONE, names.CAPACITY_TYPE}}
    kind = claim.cheapest.capacity_type
    found: dict[str, float] = {}
    for instance_type in types:
        if instance_type.name not in listed:
            continue
        prices = [
            o.price
            for o in instance_type.offerings
            if o.available
            and o.capacity_type == kind
            and (names.ZONE not in wanted or wanted[names.ZONE].has(o.zone))
            and (names.CAPACITY_TYPE not in wanted or wanted[names.CAPACITY_TYPE].has(o.capacity_type))
        ]
        if prices:
            found[instance_type.name] = max(prices)
    return found


def filter_by_price(claim: PlannedNodeClaim, types: tuple[InstanceType, ...], limit: float) -> PlannedNodeClaim | None:
    """The claim with its capacity type said and only types that cost at most ``limit``; None if nothing is left.

    Nothing is left, too, when the pool's minValues no longer hold.
    """
    prices = highest_prices(claim, types)
    kept = tuple(name for name in claim.instance_types if prices.get(name, float("inf")) <= limit)
    if not kept:
        return None
    by_name = {t.name: t for t in types}
    requirements = [r for r in claim.requirements if r.key != names.CAPACITY_TYPE]
    requirements.append(
        NodeSelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=[claim.cheapest.capacity_type])
    )
    if not claim.min_values_relaxed:
        for one in claim.requirements:
            if one.min_values is not None and _variety(one.key, kept, by_name, claim) < one.min_values:
                return None
    trimmed = [
        with_fields(r, values=list(kept)) if r.key == names.INSTANCE_TYPE and r.operator == "In" else r
        for r in requirements
    ]
    return replace(claim, instance_types=kept, requirements=tuple(trimmed))


def _variety(key: str, kept: Iterable[str], types: Mapping[str, InstanceType], claim: PlannedNodeClaim) -> int:
    """How many values of the label the kept types leave to choose from."""
    match key:
        case names.INSTANCE_TYPE:
            return len(set(kept))
        case names.CAPACITY_TYPE:
            return 1
        case names.ZONE:
            kind = claim.cheapest.capacity_type
            zones = {o.zone for n in kept for o in types[n].offerings if o.available and o.capacity_type == kind}
            return len(zones)
        case _:
            return len({types[n].labels[key] for n in kept if key in types[n].labels})
