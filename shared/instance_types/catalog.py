"""The catalog as it is stored: what EC2 says of a Region's instance types, where they are offered, at what price.

It depends on no cluster object, so one copy serves every node class; ``shared.instance_types.provider`` makes the types
of one class from it. The form is arrays in MessagePack under zlib, because every cold start reads the whole of it.
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from shared.api import labels as names

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Of the stored form. A copy of another version counts as missing and is fetched anew."""

PriceSource = Literal["aws", "kept", "embedded"]
"""Where on-demand prices come from: asked just now, the last good copy, or the table in the code."""


class MalformedCatalogError(ValueError):
    """Bytes that are no catalog of this version."""


class Device(msgspec.Struct, frozen=True, array_like=True):
    """GPUs or accelerators of one kind in a type; ``memory_mib`` and ``cores`` are of one of them."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int = 0
    cores: int = 0


class Hardware(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A type's hardware. Zero means that it has none, or that EC2 doesn't say.

    ``interfaces`` are those of the default network card, the only one that the VPC CNI uses; ``addresses`` is IPv4
    addresses per interface; ``capacity_types`` is a subset of spot and on-demand.
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


class InstanceTypeCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of a Region's instance types.

    ``zones`` maps a zone's name to its id, ``offered`` a type to the zones that have it, ``on_demand`` a type to its
    price and ``spot`` a type to its price in each zone, all in USD per hour. ``types_at`` and ``prices_at`` say when
    each half was fetched (UTC).
    """

    region: str
    types_at: datetime
    prices_at: datetime
    version: int = VERSION
    hardware: tuple[Hardware, ...] = msgspec.field(default=(), name="shapes")  # the stored name
    zones: dict[str, str] = {}
    offered: dict[str, tuple[str, ...]] = {}
    on_demand: dict[str, float] = {}
    spot: dict[str, dict[str, float]] = {}
    price_source: PriceSource = "aws"

    def price(self, labels: Mapping[str, str]) -> float | None:
        """What the node or claim of these labels costs now, USD per hour; None where that isn't known."""
        name = labels.get(names.INSTANCE_TYPE, "")
        if labels.get(names.CAPACITY_TYPE) == "spot":
            return self.spot.get(name, {}).get(labels.get(names.ZONE, ""))
        return self.on_demand.get(name)


class _Version(msgspec.Struct):
    version: int = 0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(InstanceTypeCatalog)


def encode(catalog: InstanceTypeCatalog) -> bytes:
    """The catalog's stored form; equal catalogs give equal bytes."""
    return zlib.compress(_ENCODER.encode(catalog), level=6)


def decode(stored: bytes) -> InstanceTypeCatalog:
    """The catalog of a stored form.

    Raises:
        MalformedCatalogError: it is none, or one of another version.
    """
    try:
        plain = zlib.decompress(stored)
        version = msgspec.msgpack.decode(plain, type=_Version).version
        if version != VERSION:
            raise MalformedCatalogError(f"a catalog of version {version}, but this is version {VERSION}")
        return _DECODER.decode(plain)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise MalformedCatalogError(f"not a catalog: {error}") from error
