"""Leaves out spot offerings that save too little: above a share of their type's on-demand price. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.api import labels
from shared.instance_types.adjusted_types import adjusted

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType


def within_spot_price_share(types: tuple[InstanceType, ...], share: float, *, slot: str) -> tuple[InstanceType, ...]:
    """The instance types whose spot offerings above ``share`` of the on-demand price aren't available.

    They stay offerings, so that existing nodes keep their price. Prices are compared, not effective ones. A type
    without an on-demand price keeps its spot offerings. Equal inputs of a slot (a NodePool) give the identical tuple.
    """
    return adjusted(("spot-price-share", slot), types, share, lambda t: _limited(t, share))


def _limited(instance_type: InstanceType, share: float) -> InstanceType:
    on_demand = min((o.price for o in instance_type.offerings if o.capacity_type == labels.ON_DEMAND), default=None)
    if on_demand is None:
        return instance_type
    limit = share * on_demand
    offerings = tuple(
        replace(o, available=False) if o.capacity_type == labels.SPOT and o.price > limit else o
        for o in instance_type.offerings
    )
    return replace(instance_type, offerings=offerings)
