"""Instance types, their labels and their offerings: what the provider returns and scheduling reads. Pure.

Labels come from an instance type's name and hardware, with Karpenter's keys. Source: docs/facts/karpenter.md, section
2; a test compares them with the labels that Karpenter publishes.

Offerings are the zones and capacity types, each with its price and whether it is available. Capacity reservations are
offerings of capacity type ``reserved``, as in Karpenter: one a reservation. They are paid for whether used or not, so
their price only keeps the order of instance types.

Requirements have the semantics of Kubernetes' NodeSelectorRequirement, and Karpenter's Gte and Lte. A missing label
meets NotIn and DoesNotExist only.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.nodeclass import ACTIVE
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.api.nodeclass import ResolvedAMI, ResolvedCapacityReservation
    from shared.api.quantity import Resources
    from shared.instance_types.catalog import Hardware, InstanceTypeCatalog


OfferingKey = tuple[str, str, str]
"""Capacity type, instance type, zone."""


class Offering(Struct, kw_only=True):
    """A zone and capacity type in which an instance type is sold, and its price in USD per hour.

    ``price`` is what AWS charges, or what a NodeOverlay says; ``list_price`` is AWS's in that case.
    ``adjusted_price`` is what decisions compare instead, where that differs: what a commitment has paid already costs
    nothing more. ``volume_price`` is that of the node's volumes, which come with each node. ``labels`` are those of
    this offering only, such as a capacity reservation's id. ``full``: it would be available if an instance of its
    reservation ended.
    """

    zone: str
    capacity_type: str
    price: float
    available: bool = True
    full: bool = False
    labels: Mapping[str, str] = {}
    adjusted_price: float | None = None
    list_price: float | None = None
    volume_price: float = 0.0

    @property
    def instance_price(self) -> float:
        """USD per hour of the instance alone, as decisions compare it."""
        return self.price if self.adjusted_price is None else self.adjusted_price

    @property
    def effective_price(self) -> float:
        """USD per hour that decisions compare: of the instance and its volumes."""
        return self.instance_price + self.volume_price

    @property
    def has_overlaid_price(self) -> bool:
        """Whether the price is a NodeOverlay's, which EC2 doesn't know."""
        return self.list_price is not None


class InstanceType(Struct, kw_only=True, dict=True):
    """An instance type: its labels (one value each), its resources as exact integers, and its offerings.

    ``overhead`` is what the kubelet and the system reserve; pods get ``capacity - overhead``. ``volumes`` is how many
    EBS volumes pods may attach; None: not known. ``kubelet_values`` are the kubelet settings that the class's
    expressions give for the type, as JSON; empty: it has none.
    """

    name: str
    labels: Mapping[str, str]
    capacity: Resources
    overhead: Resources
    offerings: tuple[Offering, ...]
    volumes: int | None = None
    kubelet_values: str = ""

    @cached_property
    def allocatable(self) -> Resources:
        """The resources for pods, never below zero."""
        return {name: max(0, amount - self.overhead.get(name, 0)) for name, amount in self.capacity.items()}


def is_bare_metal(name: str) -> bool:
    """Whether the instance type of that name is bare metal."""
    return "metal" in name


_TYPE_NAME = re.compile(r"^([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")


def instance_type_labels(hardware: Hardware) -> dict[str, str]:
    """The labels of the hardware, without those of the operating system, the Region and the offering."""
    family, _, size = hardware.name.partition(".")
    attributes = {
        "cpu": str(hardware.vcpus),
        "memory": str(hardware.memory_mib),
        "hypervisor": hardware.hypervisor,
        "encryption-in-transit-supported": str(hardware.encryption_in_transit).lower(),
        "capability-flex": str("flex" in family).lower(),
        "cpu-sustained-clock-speed-mhz": str(hardware.clock_mhz),
        "family": family,
        "size": size,
    }
    if type_name := _TYPE_NAME.match(hardware.name):
        attributes["category"], attributes["generation"] = type_name.groups()
    if hardware.cpu_manufacturer:
        attributes["cpu-manufacturer"] = hardware.cpu_manufacturer
    for name, amount in (
        ("ebs-bandwidth", hardware.ebs_mbps),
        ("network-bandwidth", hardware.network_mbps),
        ("local-nvme", hardware.nvme_gb),
    ):
        if amount:
            attributes[name] = str(amount)
    attributes |= _accelerator_attributes(hardware)
    return {
        labels.INSTANCE_TYPE: hardware.name,
        labels.ARCH: hardware.arch,
        **{labels.INSTANCE_PREFIX + name: value for name, value in attributes.items()},
    }


def _accelerator_attributes(hardware: Hardware) -> dict[str, str]:
    """What a node's labels say of its GPUs and its other accelerators, if each is of one kind."""
    attributes: dict[str, str] = {}
    if len(hardware.gpus) == 1:
        gpu = hardware.gpus[0]
        attributes |= {
            "gpu-name": gpu.name,
            "gpu-manufacturer": gpu.manufacturer,
            "gpu-count": str(gpu.count),
            "gpu-memory": str(gpu.memory_mib),
        }
    accelerators = hardware.accelerators or hardware.neurons
    if len(accelerators) == 1:
        device = accelerators[0]
        attributes |= {
            "accelerator-name": device.name,
            "accelerator-manufacturer": device.manufacturer,
            "accelerator-count": str(device.count),
        }
    return attributes


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
    """An offering for each reservation of the type in the zones; full ones, and blocks that end, are not available.

    The reservation with the most available instances is first: a launch can use one reservation of a type and zone.
    """

    def is_healthy(reservation: ResolvedCapacityReservation) -> bool:
        offering = (labels.RESERVED, instance_type, reservation.availability_zone)
        return reservation.state == ACTIVE and offering not in unavailable

    return tuple(
        Offering(
            zone=r.availability_zone,
            capacity_type=labels.RESERVED,
            price=on_demand / PRICE_DIVISOR,
            available=r.available_instance_count > 0 and is_healthy(r),
            full=r.available_instance_count == 0 and is_healthy(r),
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


INSTANCE_TYPE_KEYS = labels.WELL_KNOWN - {labels.HOSTNAME, labels.NODEPOOL}
"""Keys that instance types and offerings define; others are defined by the NodePool."""


_HARDWARE_KEYS = frozenset({labels.INSTANCE_TYPE, labels.ARCH, *labels.INSTANCE_LABELS})


def meets(offering_labels: Mapping[str, str], requirements: Iterable[NodeSelectorRequirement]) -> bool:
    """Whether the labels of an instance type and offering meet the requirements on keys that these define."""
    return all(
        met(r.operator, r.values, offering_labels.get(labels.normalize_key(r.key)))
        for r in requirements
        if labels.normalize_key(r.key) in INSTANCE_TYPE_KEYS
    )


def excluded_types(requirements: Iterable[NodeSelectorRequirement], catalog: InstanceTypeCatalog) -> str:
    """Which of the requirements exclude every instance type of the Region, for users; empty if a type is left.

    Requirements on zones and capacity types don't count here: what of those is left changes from minute to minute.
    """
    required = [r for r in requirements if labels.normalize_key(r.key) in _HARDWARE_KEYS]
    if not required or any(meets(instance_type_labels(h), required) for h in catalog.hardware):
        return ""
    types = [instance_type_labels(h) for h in catalog.hardware]
    alone = [r for r in required if not any(meets(of_type, [r]) for of_type in types)] or required
    stated = " and ".join(f"{r.key} {r.operator} {', '.join(r.values)}".rstrip() for r in alone)
    return f"no instance type of {catalog.region} meets {stated}"


def met(operator: str, values: list[str], value: str | None) -> bool:
    """Whether a label's value (None: no such label) meets the operator with its values.

    >>> met("Gt", ["4"], "8"), met("NotIn", ["nvidia"], None), met("In", ["nvidia"], None)
    (True, True, False)
    """
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" | "Gte" | "Lte":
            return value is not None and bool(values) and _compared(operator, value, values[0])
        case _:
            return False


def _compared(operator: str, value: str, bound: str) -> bool:
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    match operator:
        case "Gt":
            return left > right
        case "Lt":
            return left < right
        case "Gte":
            return left >= right
        case _:
            return left <= right


def ami_for(instance_labels: Mapping[str, str], amis: Iterable[ResolvedAMI]) -> ResolvedAMI | None:
    """The AMI for an instance type with those labels, or None if none of them runs on it.

    The AMIs of a class's status are sorted newest first, so the first match is the one to use.
    """
    return next(
        (a for a in amis if all(met(r.operator, r.values, instance_labels.get(r.key)) for r in a.requirements)), None
    )


_LETTERS = re.compile(r"[a-z]*")
_STANDARD = frozenset("acdhimrtz")
_OF_A_CATEGORY = {"g": "g-vt", "vt": "g-vt", "dl": "dl", "f": "f", "inf": "inf", "trn": "trn", "x": "x"}
_AT_LEAST = ">="
_ANY_ZONE = "*"


def quota_of(instance_type: str) -> str:
    """The quota that counts the type's vCPUs, for each of spot and on-demand.

    Source: "Spot Instance quotas", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html. A
    family of another letter counts as one of its own: if it shares a quota after all, that costs a call.

    >>> quota_of("m7i-flex.large"), quota_of("g6.xlarge"), quota_of("p5.48xlarge"), quota_of("x2idn.large")
    ('standard', 'g-vt', 'p5', 'x')
    """
    family = instance_type.partition(".")[0]
    letters = _LETTERS.match(family)
    category = letters.group() if letters is not None else ""
    if category in _STANDARD:
        return "standard"
    return _OF_A_CATEGORY.get(category, family)


def beyond_quota(capacity_type: str, instance_type: str, vcpus: int) -> OfferingKey:
    """What stands for every offering of the type's quota with that many vCPUs or more, in any zone.

    A quota holds for all types that share it, so what doesn't fit into it is one mark. Smaller types may fit.

    >>> beyond_quota("spot", "c7g.2xlarge", 8)
    ('spot', 'standard>=8', '*')
    """
    return (capacity_type, f"{quota_of(instance_type)}{_AT_LEAST}{vcpus}", _ANY_ZONE)


def is_of_quota(offering: OfferingKey) -> bool:
    """Whether it stands for offerings of a quota."""
    return offering[2] == _ANY_ZONE


def with_quotas(unavailable: frozenset[OfferingKey], catalog: InstanceTypeCatalog) -> frozenset[OfferingKey]:
    """The unavailable offerings, with each one of the catalog that its quota has no room for."""
    marks = tuple(filter(is_of_quota, unavailable))
    return unavailable | {
        (capacity_type, hardware.name, zone)
        for capacity_type in {mark[0] for mark in marks}
        for hardware in catalog.hardware
        if is_covered(capacity_type, hardware.name, hardware.vcpus, marks)
        for zone in catalog.offered.get(hardware.name, ())
    }


def is_covered(capacity_type: str, instance_type: str, vcpus: int, marks: Iterable[OfferingKey]) -> bool:
    """Whether one of the marks (:func:`is_of_quota`) says that the quota of the type has no room for it."""
    own = quota_of(instance_type)
    for marked_capacity_type, name, _ in marks:
        quota, _, least = name.partition(_AT_LEAST)
        if (marked_capacity_type, quota) == (capacity_type, own) and vcpus >= int(least):
            return True
    return False
