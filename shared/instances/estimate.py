"""What a type costs, roughly, when no price list can be had: so that nodes are still chosen in a sensible order.

Ratios of AWS's list prices for Linux in us-east-1 (November 2026). Real prices are within a quarter of these for the
common families; the order between sizes and generations holds, and that is what choosing needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.instances.catalog import Shape

_PER_VCPU = 0.036
_PER_GIB = 0.0031
_PER_NVME_GB = 0.00012
_PER_ACCELERATOR = 0.30
_PER_BURSTABLE_GIB = 0.0104
"""The t families are priced by their memory alone."""
_ARM, _AMD, _FLEX, _FAST_NETWORK = 0.8, 0.9, 0.95, 1.3
_PER_GPU = {
    "k80": 0.55,
    "m60": 0.6,
    "t4": 0.33,
    "t4g": 0.2,
    "l4": 0.4,
    "a10g": 0.75,
    "l40s": 1.3,
    "v100": 2.6,
    "a100": 2.9,
    "h100": 5.5,
    "h200": 6.5,
    "b200": 10.0,
    "b300": 13.0,
}
_OTHER_GPU = 1.0


def on_demand(shape: Shape) -> float:
    """USD per hour, on demand."""
    family = shape.name.partition(".")[0]
    if family.startswith("t") and not family.startswith("trn"):
        price = _PER_BURSTABLE_GIB * shape.memory_mib / 1024
    else:
        price = _PER_VCPU * shape.vcpus + _PER_GIB * shape.memory_mib / 1024
    if shape.arch == "arm64":
        price *= _ARM
    elif shape.cpu_manufacturer == "amd":
        price *= _AMD
    if "flex" in family:
        price *= _FLEX
    if "n" in family.lstrip("abcdefghijklmnopqrstuvwxyz").lstrip("0123456789"):
        price *= _FAST_NETWORK
    price += _PER_NVME_GB * shape.nvme_gb
    price += sum(_PER_GPU.get(gpu.name, _OTHER_GPU) * gpu.count for gpu in shape.gpus)
    price += _PER_ACCELERATOR * sum(device.count for device in shape.accelerators or shape.neurons)
    return round(price, 4)
