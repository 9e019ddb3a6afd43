"""On-demand capacity reservations as offerings: paid for whether used or not, so cheaper than anything else.

Karpenter's rules: capacity type ``reserved``, one offering a reservation, at a price that only keeps the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.instances.offering import Offering

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.api.nodeclass import ResolvedCapacityReservation

RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE = labels.RESERVATION_LABELS
PRICE_DIVISOR = 10_000_000
"""A reserved instance counts this much less than on demand: the money is spent, but smaller types still go first."""


def offerings(
    reservations: Iterable[ResolvedCapacityReservation],
    instance_type: str,
    *,
    on_demand: float,
    zones: Collection[str],
    zone_labels: Mapping[str, Mapping[str, str]],
    unavailable: Collection[tuple[str, str, str]],
) -> tuple[Offering, ...]:
    """The type's offerings in those of the reservations that are for it, in the zones; full ones are not available.

    The one with the most room comes first: a launch can ask for one reservation of a type and zone only.
    """
    return tuple(
        Offering(
            zone=r.availability_zone,
            capacity_type=labels.RESERVED,
            price=on_demand / PRICE_DIVISOR,
            available=r.available_instance_count > 0
            and (labels.RESERVED, instance_type, r.availability_zone) not in unavailable,
            labels={
                **zone_labels.get(r.availability_zone, {}),
                RESERVATION_ID: r.id,
                RESERVATION_TYPE: r.reservation_type,
                RESERVATION_INTERRUPTIBLE: str(r.interruptible).lower(),
            },
        )
        for r in sorted(reservations, key=lambda r: (-r.available_instance_count, r.id))
        if r.instance_type == instance_type and r.availability_zone in zones
    )
