"""The labels of an instance type: what its name and hardware say, under Karpenter's keys.

Source: docs/facts/karpenter.md section 2; checked against the labels that Karpenter publishes for every type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels

if TYPE_CHECKING:
    from shared.instances.catalog import Shape

_SCHEME = re.compile(r"^([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
_PREFIX = labels.INSTANCE_PREFIX


def shape_labels(shape: Shape) -> dict[str, str]:
    """The labels of a shape, without those of the operating system, the Region and the offering."""
    family, _, size = shape.name.partition(".")
    found = {
        "cpu": str(shape.vcpus),
        "memory": str(shape.memory_mib),
        "hypervisor": shape.hypervisor,
        "encryption-in-transit-supported": str(shape.encryption_in_transit).lower(),
        "capability-flex": str("flex" in family).lower(),
        "cpu-sustained-clock-speed-mhz": str(shape.clock_mhz),
        "family": family,
        "size": size,
    }
    if scheme := _SCHEME.match(shape.name):
        found["category"], found["generation"] = scheme.groups()
    if shape.cpu_manufacturer:
        found["cpu-manufacturer"] = shape.cpu_manufacturer
    for name, amount in (
        ("ebs-bandwidth", shape.ebs_mbps),
        ("network-bandwidth", shape.network_mbps),
        ("local-nvme", shape.nvme_gb),
    ):
        if amount:
            found[name] = str(amount)
    if len(shape.gpus) == 1:
        gpu = shape.gpus[0]
        found |= {
            "gpu-name": gpu.name,
            "gpu-manufacturer": gpu.manufacturer,
            "gpu-count": str(gpu.count),
            "gpu-memory": str(gpu.memory_mib),
        }
    accelerators = shape.accelerators or shape.neurons
    if len(accelerators) == 1:
        device = accelerators[0]
        found |= {
            "accelerator-name": device.name,
            "accelerator-manufacturer": device.manufacturer,
            "accelerator-count": str(device.count),
        }
    return {
        labels.INSTANCE_TYPE: shape.name,
        labels.ARCH: shape.arch,
        **{_PREFIX + name: value for name, value in found.items()},
    }
