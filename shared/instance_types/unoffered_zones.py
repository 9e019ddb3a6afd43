"""Leaves zones out: instance types whose offerings in some zones aren't available. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.instance_types.adjusted_types import adjusted

if TYPE_CHECKING:
    from collections.abc import Collection

    from shared.instance_types.instance_type import InstanceType


def without_zones(types: tuple[InstanceType, ...], zones: Collection[str], *, slot: str) -> tuple[InstanceType, ...]:
    """The instance types with no available offering in the zones; existing nodes there keep their price.

    Equal inputs of a slot (a NodePool) give the identical tuple; no zones, the types as they are.
    """
    if not zones:
        return types
    left_out = frozenset(zones)

    def restricted(instance_type: InstanceType) -> InstanceType:
        offerings = tuple(replace(o, available=False) if o.zone in left_out else o for o in instance_type.offerings)
        return replace(instance_type, offerings=offerings)

    return adjusted(("zones", slot), types, left_out, restricted)
