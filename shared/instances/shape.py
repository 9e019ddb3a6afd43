"""Shapes out of DescribeInstanceTypes: its answer cut down to what labels and the allocatable arithmetic need.

Pure, so that it can be held against the whole published list of types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.instances import limits
from shared.instances.catalog import Device, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_ec2.type_defs import (
        GpuDeviceInfoTypeDef,
        InferenceDeviceInfoTypeDef,
        InstanceTypeInfoTypeDef,
        NeuronDeviceInfoTypeDef,
    )

_ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
_USABLE = (labels.ON_DEMAND, labels.SPOT)


def shape(info: InstanceTypeInfoTypeDef) -> Shape | None:
    """The shape of a type, or None if no node can be made of it: a Mac, or only 32-bit."""
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
    return Shape(
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
        clock_mhz=limits.clock_mhz(name, described=processor.get("SustainedClockSpeedInGhz", 0) * 1000),
        ebs_mbps=ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps", 0) if optimized else 0,
        network_mbps=limits.network_mbps(
            name, described=sum(card.get("BaselineBandwidthInGbps", 0) * 1000 for card in cards.values())
        ),
        branch_interfaces=limits.branch_interfaces(name),
        nvme_gb=storage.get("TotalSizeInGB", 0) if storage.get("NvmeSupport") != "unsupported" else 0,
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        gpus=_gpus(info.get("GpuInfo", {}).get("Gpus", [])),
        accelerators=_accelerators(info.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])),
        neurons=_neurons(info.get("NeuronInfo", {}).get("NeuronDevices", [])),
        capacity_types=tuple(sorted(c for c in info.get("SupportedUsageClasses", []) if c in _USABLE)),
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
