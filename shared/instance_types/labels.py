"""The labels of an instance type, from its name and hardware, with Karpenter's keys.

Source: docs/facts/karpenter.md, section 2; a test compares them with the labels that Karpenter publishes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels

if TYPE_CHECKING:
    from shared.instance_types.catalog import Hardware

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
    return {
        labels.INSTANCE_TYPE: hardware.name,
        labels.ARCH: hardware.arch,
        **{labels.INSTANCE_PREFIX + name: value for name, value in attributes.items()},
    }
