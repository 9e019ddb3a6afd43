"""The catalog of a Region's instance types: their hardware, zones and prices; and its stored form.

It depends on no cluster object, so one copy serves all node classes: ``shared.instance_types.provider`` derives the
instance types of a class. Every cold start reads all of it, so hardware is stored as arrays.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from shared.api import labels as names
from shared.base.blobs import BlobForm
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Mapping

PriceSource = Literal["aws", "kept", "embedded"]
"""The source of on-demand prices: the price list, the catalog before, or the estimates in the code."""


class Device(WireStruct, array_like=True):
    """GPUs or accelerators of one model in an instance type; ``memory_mib`` and ``cores`` are of one device."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int = 0
    cores: int = 0


class Hardware(WireStruct, array_like=True, kw_only=True):
    """The hardware of an instance type. Zero: it has none, or EC2 doesn't report it.

    ``interfaces`` are those of the default network card, the only one that the VPC CNI uses. ``addresses`` is IPv4
    addresses per interface. ``capacity_types`` is a subset of spot and on-demand. ``ebs_attachments`` is the greatest
    number of EBS volumes, with one network interface; ``shared_attachments``: each further interface takes one of them.
    """

    name: str
    arch: str
    vcpus: int
    memory_mib: int
    interfaces: int
    addresses: int
    hypervisor: str = ""
    bare_metal: bool = False
    encryption_in_transit: bool = False
    cpu_manufacturer: str = ""
    clock_mhz: int = 0
    ebs_mbps: int = 0
    network_mbps: int = 0
    branch_interfaces: int = 0
    nvme_gb: int = 0
    efa: int = 0
    gpus: tuple[Device, ...] = ()
    accelerators: tuple[Device, ...] = ()
    neurons: tuple[Device, ...] = ()
    capacity_types: tuple[str, ...] = ()
    ebs_attachments: int = 0
    shared_attachments: bool = True
    nitro_enclaves: bool = False


class InstanceTypeCatalog(WireStruct, kw_only=True):
    """The instance types of a Region.

    ``zones`` maps a zone's name to its id, ``offered`` a type to the zones that have it, ``on_demand`` a type to its
    price and ``spot`` a type to its price in each zone, all in USD per hour. ``types_at`` and ``prices_at`` say when
    each half was fetched (UTC).
    """

    region: str
    types_at: datetime
    prices_at: datetime
    hardware: tuple[Hardware, ...] = ()
    zones: dict[str, str] = {}
    offered: dict[str, tuple[str, ...]] = {}
    on_demand: dict[str, float] = {}
    spot: dict[str, dict[str, float]] = {}
    price_source: PriceSource = "aws"

    def price(self, labels: Mapping[str, str]) -> float | None:
        """The current price of a node or NodeClaim with these labels, in USD per hour; None if it isn't known."""
        name = labels.get(names.INSTANCE_TYPE, "")
        if labels.get(names.CAPACITY_TYPE) == "spot":
            return self.spot.get(name, {}).get(labels.get(names.ZONE, ""))
        return self.on_demand.get(name)


FORM = BlobForm(InstanceTypeCatalog, version=1, noun="a catalog")
"""The stored form. A catalog of another version counts as missing and is fetched again."""
