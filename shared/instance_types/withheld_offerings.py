"""Offerings that a NodePool isn't offered: spot that saves too little, zones without free addresses or shifted away.

They stay offerings that aren't available, so that existing nodes keep their price. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.base.struct import with_fields
from shared.instance_types.provider import Adjustment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from shared.instance_types.instance_type import InstanceType, Offering


def spot_above(share: float) -> Adjustment:
    """Withholds the spot offerings above ``share`` of their type's on-demand price.

    Prices are compared, not effective ones. A type without an on-demand price keeps its spot offerings.
    """

    def adjust(instance_type: InstanceType) -> InstanceType:
        on_demand = min((o.price for o in instance_type.offerings if o.capacity_type == labels.ON_DEMAND), default=None)
        if on_demand is None:
            return instance_type
        limit = share * on_demand
        return _withheld(instance_type, lambda o: o.capacity_type == labels.SPOT and o.price > limit)

    return Adjustment("spot-price-share", share, adjust)


def zones(names: Collection[str], *, why: str = "zones") -> Adjustment:
    """Withholds all offerings in the zones; ``why`` is the step that does."""
    withheld = frozenset(names)
    return Adjustment(why, withheld, lambda t: _withheld(t, lambda o: o.zone in withheld))


def _withheld(instance_type: InstanceType, is_withheld: Callable[[Offering], bool]) -> InstanceType:
    offerings = tuple(
        with_fields(o, available=False, full=False) if is_withheld(o) else o for o in instance_type.offerings
    )
    return with_fields(instance_type, offerings=offerings)
