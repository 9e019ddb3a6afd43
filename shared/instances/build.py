"""The instance types of one node class: the catalog seen through its images, kubelet settings and volumes.

Pure. Scheduling gets what comes out of here, and the launch asks for nothing else, so a type that the class can't use
(no image for its architecture, not offered in its zones) is left out at this place and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.instances import allocatable, reservation
from shared.instances.family import family_of, is_legacy, node_labels
from shared.instances.images import image_for
from shared.instances.naming import shape_labels
from shared.instances.offering import InstanceType, Offering

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shared.api.nodeclass import EC2NodeClass, Kubelet
    from shared.instances.catalog import RawCatalog, Shape

RAID0 = "RAID0"
_FABRIC = frozenset({"efa", "efa-only"})
"""Types of network interfaces that are Elastic Fabric Adapters."""


def instance_types(
    raw: RawCatalog,
    node_class: EC2NodeClass,
    kubelet: Kubelet | None,
    *,
    zones: Collection[str],
    unavailable: Collection[tuple[str, str, str]],
    observed_memory: Mapping[str, int] | None = None,
    only_offered: bool = True,
) -> tuple[InstanceType, ...]:
    """What nodes of the class may be, by name.

    ``kubelet`` overrides the class's own settings (None: the class's). ``zones`` are those that the class has subnets
    in. ``unavailable`` are offerings ``(capacity type, instance type, zone)`` that had no capacity a moment ago: they
    stay, as not available. ``observed_memory`` maps a type to the memory capacity in bytes that its nodes reported.
    An offering without a known price is left out: nothing can be decided about it. A type without any offering in
    those zones is left out too, unless ``only_offered`` is false; and so is one that can't take the Elastic Fabric
    Adapters of the class's own network interfaces.

    Raises:
        QuantityError: a quantity of the class's kubelet settings or volumes is none.
    """
    spec = node_class.spec
    family = family_of(spec, legacy=is_legacy(node_class.kind))
    settings = kubelet if kubelet is not None else spec.kubelet
    common = {labels.REGION: raw.region, **node_labels(family)}
    raid = spec.instance_store_policy == RAID0
    fabrics = sum(nic.get("interfaceType") in _FABRIC for nic in spec.network_interfaces)
    observed = observed_memory or {}
    images, reserved = node_class.status.amis, node_class.status.capacity_reservations
    zone_labels = {zone: {labels.ZONE_ID: zone_id} if zone_id else {} for zone, zone_id in raw.zones.items()}
    wanted = sorted(zones)
    built = []
    for shape in raw.shapes:
        offerings = _offerings(raw, shape, wanted, zone_labels, unavailable)
        if reserved and shape.name in raw.on_demand:
            offerings += reservation.offerings(
                reserved,
                shape.name,
                on_demand=raw.on_demand[shape.name],
                zones=wanted,
                zone_labels=zone_labels,
                unavailable=unavailable,
            )
        if (only_offered and not offerings) or (family.os == "windows" and shape.arch != "amd64"):
            continue
        if shape.efa < fabrics:
            continue
        type_labels = shape_labels(shape) | common
        if images and image_for(type_labels, images) is None:
            continue
        capacity = allocatable.capacity(
            shape,
            family,
            settings,
            block_devices=spec.block_device_mappings,
            raid=raid,
            observed_memory=observed.get(shape.name),
        )
        built.append(
            InstanceType(
                name=shape.name,
                labels=type_labels,
                capacity=capacity,
                overhead=allocatable.overhead(shape, family, settings, capacity),
                offerings=offerings,
            )
        )
    return tuple(sorted(built, key=lambda t: t.name))


def _offerings(
    raw: RawCatalog,
    shape: Shape,
    zones: Collection[str],
    zone_labels: Mapping[str, Mapping[str, str]],
    unavailable: Collection[tuple[str, str, str]],
) -> tuple[Offering, ...]:
    name = shape.name
    offered = raw.offered.get(name, ())
    on_demand = raw.on_demand.get(name)
    spot = raw.spot.get(name, {})
    found = []
    for zone in zones:
        if zone not in offered:
            continue
        for capacity_type in shape.capacity_types:
            price = on_demand if capacity_type == labels.ON_DEMAND else spot.get(zone)
            if price is not None:
                found.append(
                    Offering(
                        zone=zone,
                        capacity_type=capacity_type,
                        price=price,
                        available=(capacity_type, name, zone) not in unavailable,
                        labels=zone_labels.get(zone, {}),
                    )
                )
    return tuple(found)
