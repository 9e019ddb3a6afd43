"""Instance prices: list prices of common families, a formula for the others, and seeded spot discounts.

The relative order matters to a scheduler and is realistic: Graviton and AMD cost less than Intel, burstable less than
general purpose, memory and GPUs more. Prices are us-east-1's in USD per hour and depend only on the seed.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

# On-demand, Linux, us-east-1, per hour: the price of the family's "large" (2 vCPUs) or the size named. From AWS's list.
_PRICE_OF_LARGE = {
    "m4": 0.10, "m5": 0.096, "m5a": 0.086, "m5ad": 0.103, "m5d": 0.113, "m5dn": 0.136, "m5n": 0.119, "m5zn": 0.1652,
    "m6a": 0.0864, "m6g": 0.077, "m6gd": 0.0904, "m6i": 0.096, "m6id": 0.11865, "m6in": 0.13923, "m7a": 0.11592,
    "m7g": 0.0816, "m7gd": 0.1068, "m7i": 0.1008, "m7i-flex": 0.09576, "m8g": 0.08976,
    "c4": 0.10, "c5": 0.085, "c5a": 0.077, "c5ad": 0.086, "c5d": 0.096, "c5n": 0.108, "c6a": 0.0765, "c6g": 0.068,
    "c6gd": 0.0768, "c6gn": 0.0864, "c6i": 0.085, "c6id": 0.1008, "c6in": 0.1134, "c7a": 0.10264, "c7g": 0.0725,
    "c7gd": 0.0907, "c7gn": 0.1248, "c7i": 0.08925, "c7i-flex": 0.08479, "c8g": 0.07976,
    "r4": 0.133, "r5": 0.126, "r5a": 0.113, "r5ad": 0.131, "r5b": 0.149, "r5d": 0.144, "r5dn": 0.167, "r5n": 0.149,
    "r6a": 0.1134, "r6g": 0.1008, "r6gd": 0.1152, "r6i": 0.126, "r6id": 0.1512, "r6in": 0.17433, "r7a": 0.15215,
    "r7g": 0.1071, "r7gd": 0.1361, "r7i": 0.1323, "r8g": 0.11782,
    "i3": 0.156, "i3en": 0.226, "i4g": 0.15444, "i4i": 0.1716, "x2gd": 0.167, "z1d": 0.186,
}  # fmt: skip
_PRICES = {
    "t2.nano": 0.0058, "t2.micro": 0.0116, "t2.small": 0.023, "t2.medium": 0.0464, "t2.large": 0.0928,
    "t2.xlarge": 0.1856, "t2.2xlarge": 0.3712,
    "t3.nano": 0.0052, "t3.micro": 0.0104, "t3.small": 0.0208, "t3.medium": 0.0416, "t3.large": 0.0832,
    "t3.xlarge": 0.1664, "t3.2xlarge": 0.3328,
    "t3a.nano": 0.0047, "t3a.micro": 0.0094, "t3a.small": 0.0188, "t3a.medium": 0.0376, "t3a.large": 0.0752,
    "t3a.xlarge": 0.1504, "t3a.2xlarge": 0.3008,
    "t4g.nano": 0.0042, "t4g.micro": 0.0084, "t4g.small": 0.0168, "t4g.medium": 0.0336, "t4g.large": 0.0672,
    "t4g.xlarge": 0.1344, "t4g.2xlarge": 0.2688,
    "g4dn.xlarge": 0.526, "g4dn.2xlarge": 0.752, "g4dn.4xlarge": 1.204, "g4dn.8xlarge": 2.176,
    "g4dn.12xlarge": 3.912, "g4dn.16xlarge": 4.352, "g4dn.metal": 7.824,
    "g5.xlarge": 1.006, "g5.2xlarge": 1.212, "g5.4xlarge": 1.624, "g5.8xlarge": 2.448, "g5.12xlarge": 5.672,
    "g5.16xlarge": 4.096, "g5.24xlarge": 8.144, "g5.48xlarge": 16.288,
    "p3.2xlarge": 3.06, "p3.8xlarge": 12.24, "p3.16xlarge": 24.48, "p4d.24xlarge": 32.7726,
    "inf1.xlarge": 0.228, "inf1.2xlarge": 0.362, "inf1.6xlarge": 1.18, "inf1.24xlarge": 4.721,
    "inf2.xlarge": 0.7582, "inf2.8xlarge": 1.96786, "inf2.24xlarge": 6.49063, "inf2.48xlarge": 12.98127,
    "trn1.2xlarge": 1.34375, "trn1.32xlarge": 21.5,
}  # fmt: skip
_LARGE_VCPUS = 2
_PER_VCPU, _PER_GIB, _PER_STORAGE_GB = 0.034, 0.0035, 0.0002
_PER_GPU_GIB, _PER_ACCELERATOR = 0.045, 0.16
_ARM_FACTOR, _AMD_FACTOR, _NETWORK_FACTOR = 0.8, 0.9, 1.25
_MIN_DISCOUNT, _MAX_DISCOUNT = 0.50, 0.75


def _pseudo_random(*parts: object) -> float:
    """A number in [0, 1) that depends only on the parts."""
    digest = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


@lru_cache(maxsize=4096)
def on_demand(instance_type: str) -> float:
    """USD per hour of an instance type.

    Raises:
        KeyError: EC2 has no such type.
    """
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    type_info: dict[str, Any] = INSTANCE_TYPES[instance_type]
    if instance_type in _PRICES:
        return _PRICES[instance_type]
    family = instance_type.split(".", 1)[0]
    vcpus = int(type_info["VCpuInfo"]["DefaultVCpus"])
    if family in _PRICE_OF_LARGE:
        return round(_PRICE_OF_LARGE[family] * vcpus / _LARGE_VCPUS, 5)
    return round(_estimate(family, vcpus, type_info), 4)


def _estimate(family: str, vcpus: int, type_info: dict[str, Any]) -> float:
    price = _PER_VCPU * vcpus + _PER_GIB * int(type_info["MemoryInfo"]["SizeInMiB"]) / 1024
    if "arm64" in type_info["ProcessorInfo"]["SupportedArchitectures"]:
        price *= _ARM_FACTOR
    elif "a" in family.rstrip("0123456789")[1:]:
        price *= _AMD_FACTOR
    if "n" in family[1:]:
        price *= _NETWORK_FACTOR
    price += _PER_STORAGE_GB * float(type_info.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0))
    price += _PER_GPU_GIB * float(type_info.get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0)) / 1024
    chips = type_info.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
    return price + _PER_ACCELERATOR * sum(int(chip.get("Count", 0)) for chip in chips)


class Prices:
    """The on-demand and spot prices of a world; single spot prices can be set."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._spot_prices: dict[tuple[str, str], float] = {}

    def on_demand(self, instance_type: str) -> float:
        """USD per hour; KeyError for an unknown type."""
        return on_demand(instance_type)

    def spot(self, instance_type: str, zone: str) -> float:
        """USD per hour: half to a quarter of the on-demand price, different by zone."""
        if (instance_type, zone) in self._spot_prices:
            return self._spot_prices[instance_type, zone]
        family = instance_type.split(".", 1)[0]
        # The sizes of a family have similar discounts; each zone's pool adds its own part.
        share = 0.6 * _pseudo_random(self._seed, family) + 0.4 * _pseudo_random(self._seed, instance_type, zone)
        discount = _MIN_DISCOUNT + (_MAX_DISCOUNT - _MIN_DISCOUNT) * share
        return max(0.0001, round(self.on_demand(instance_type) * (1 - discount), 4))

    def set_spot(self, instance_type: str, zone: str, price: float) -> None:
        """Set a spot price from now on."""
        self._spot_prices[instance_type, zone] = price
