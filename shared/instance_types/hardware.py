"""Hardware of instance types: DescribeInstanceTypes cut down to what labels and allocatable need, and what EC2 omits.

Branch interfaces and baseline bandwidth are not in EC2's answer. They come from ``hardware.json``, which names its
source; ``python -m docs.fields --hardware 1.15`` writes it. A type that is newer than that table has no branch
interfaces, and the bandwidth that EC2 reports.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels
from shared.base.struct import WireStruct
from shared.instance_types.catalog import Device, Hardware

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_ec2.type_defs import (
        GpuDeviceInfoTypeDef,
        InferenceDeviceInfoTypeDef,
        InstanceTypeInfoTypeDef,
        NeuronDeviceInfoTypeDef,
    )

_ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
_USAGE_CLASSES = (labels.ON_DEMAND, labels.SPOT)


def parse_hardware(info: InstanceTypeInfoTypeDef) -> Hardware | None:
    """The hardware of an instance type, or None if no node can have it: a Mac, or 32-bit only."""
    name = str(info["InstanceType"])
    architectures = info.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
    arch = next((_ARCHES[a] for a in architectures if a in _ARCHES), None)
    if arch is None or name.startswith("mac"):
        return None
    network = info.get("NetworkInfo", {})
    cards = {card.get("NetworkCardIndex", 0): card for card in network.get("NetworkCards", [])}
    default_card = cards.get(network.get("DefaultNetworkCardIndex", 0), {})
    ebs = info.get("EbsInfo", {})
    optimized = ebs.get("EbsOptimizedSupport") == "default"
    storage = info.get("InstanceStorageInfo", {})
    processor = info.get("ProcessorInfo", {})
    return Hardware(
        name=name,
        arch=arch,
        vcpus=info["VCpuInfo"]["DefaultVCpus"],
        memory_mib=info["MemoryInfo"]["SizeInMiB"],
        interfaces=default_card.get("MaximumNetworkInterfaces", network.get("MaximumNetworkInterfaces", 0)),
        addresses=network.get("Ipv4AddressesPerInterface", 0),
        hypervisor=info.get("Hypervisor", ""),
        bare_metal=info.get("BareMetal", False),
        encryption_in_transit=network.get("EncryptionInTransitSupported", False),
        cpu_manufacturer=_kebab(processor.get("Manufacturer", "")),
        clock_mhz=clock_mhz(name, described=processor.get("SustainedClockSpeedInGhz", 0) * 1000),
        ebs_mbps=ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps", 0) if optimized else 0,
        network_mbps=network_mbps(
            name, described=sum(card.get("BaselineBandwidthInGbps", 0) * 1000 for card in cards.values())
        ),
        branch_interfaces=branch_interfaces(name),
        nvme_gb=storage.get("TotalSizeInGB", 0) if storage.get("NvmeSupport") != "unsupported" else 0,
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        gpus=_gpus(info.get("GpuInfo", {}).get("Gpus", [])),
        accelerators=_accelerators(info.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])),
        neurons=_neurons(info.get("NeuronInfo", {}).get("NeuronDevices", [])),
        ebs_attachments=ebs.get("MaximumEbsAttachments", 0),
        shared_attachments=ebs.get("AttachmentLimitType", "shared") == "shared",
        capacity_types=tuple(sorted(c for c in info.get("SupportedUsageClasses", []) if c in _USAGE_CLASSES)),
        nitro_enclaves=info.get("NitroEnclavesSupport") == "supported",
    )


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def _gpus(devices: Iterable[GpuDeviceInfoTypeDef]) -> tuple[Device, ...]:
    return tuple(
        Device(
            name=_kebab(d.get("Name", "")),
            manufacturer=_kebab(d.get("Manufacturer", "")),
            count=d.get("Count", 0),
            memory_mib=d.get("MemoryInfo", {}).get("SizeInMiB", 0),
        )
        for d in devices
    )


def _accelerators(devices: Iterable[InferenceDeviceInfoTypeDef]) -> tuple[Device, ...]:
    return tuple(
        Device(name=_kebab(d.get("Name", "")), manufacturer=_kebab(d.get("Manufacturer", "")), count=d.get("Count", 0))
        for d in devices
    )


def _neurons(devices: Iterable[NeuronDeviceInfoTypeDef]) -> tuple[Device, ...]:
    return tuple(
        Device(
            name=_kebab(d.get("Name", "")),
            manufacturer="aws",
            count=d.get("Count", 0),
            cores=d.get("CoreInfo", {}).get("Count", 0),
        )
        for d in devices
    )


class _Facts(WireStruct):
    clock_mhz: dict[str, int]
    types: dict[str, tuple[int, int | None]]


@functools.cache
def _facts() -> _Facts:
    return msgspec.json.decode((Path(__file__).parent / "hardware.json").read_bytes(), type=_Facts)


def branch_interfaces(instance_type: str) -> int:
    """The number of branch interfaces (``vpc.amazonaws.com/pod-eni``) of a node of the type."""
    return _facts().types.get(instance_type, (0, 0))[0]


def network_mbps(instance_type: str, *, described: float) -> int:
    """The baseline bandwidth, Mbps; 0 where AWS documents none. ``described`` is EC2's value, for newer types."""
    known = _facts().types.get(instance_type, (0, None))[1]
    return round(described) if known is None else known


def clock_mhz(instance_type: str, *, described: float) -> int:
    """The sustained clock speed, MHz; for some families Karpenter's reference differs from EC2's value."""
    return _facts().clock_mhz.get(instance_type.partition(".")[0], round(described))
