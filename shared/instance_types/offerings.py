"""The offerings of an instance type: its zones and capacity types, each with its price and whether it is available.

Capacity reservations are offerings of capacity type ``reserved``, as in Karpenter: one a reservation. They are paid for
whether used or not, so their price only keeps the order of instance types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.instance_types.instance_type import Offering

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.api.nodeclass import ResolvedCapacityReservation
    from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
    from shared.instance_types.instance_type import OfferingKey

RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE = labels.RESERVATION_LABELS
PRICE_DIVISOR = 10_000_000
"""The price of a reserved offering is the on-demand price divided by this: its money is spent, but types keep order."""


def zonal_offerings(
    catalog: InstanceTypeCatalog,
    hardware: Hardware,
    zones: Collection[str],
    zone_labels: Mapping[str, Mapping[str, str]],
    unavailable: Collection[OfferingKey],
) -> tuple[Offering, ...]:
    """The spot and on-demand offerings with a known price, in those of the zones that have the type."""
    name = hardware.name
    offered = catalog.offered.get(name, ())
    on_demand = catalog.on_demand.get(name)
    spot = catalog.spot.get(name, {})
    offerings = []
    for zone in zones:
        if zone not in offered:
            continue
        for capacity_type in hardware.capacity_types:
            price = on_demand if capacity_type == labels.ON_DEMAND else spot.get(zone)
            if price is not None:
                offerings.append(
                    Offering(
                        zone=zone,
                        capacity_type=capacity_type,
                        price=price,
                        available=(capacity_type, name, zone) not in unavailable,
                        labels=zone_labels.get(zone, {}),
                    )
                )
    return tuple(offerings)


def reserved_offerings(
    reservations: Iterable[ResolvedCapacityReservation],
    instance_type: str,
    *,
    on_demand: float,
    zones: Collection[str],
    zone_labels: Mapping[str, Mapping[str, str]],
    unavailable: Collection[OfferingKey],
) -> tuple[Offering, ...]:
    """An offering for each reservation of the type in the zones; full reservations are not available.

    The reservation with the most available instances is first: a launch can use one reservation of a type and zone.
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
