"""Prices of instance types: spot from DescribeSpotPriceHistory, on-demand from the Price List, else estimates.

The estimates are ratios of AWS's list prices for Linux in us-east-1 (November 2026). Real prices of the common families
are within a quarter of them. The order of sizes and generations is right, and choosing a type needs no more.

AWS bills in US dollars, except in the China Regions, which bill in yuan: there every price is in yuan per hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shared.base.aws import PAGES
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_pricing import PricingClient

    from shared.instance_types.catalog import Hardware

_SERVICE = "AmazonEC2"
_CHINA = "cn-"
_YUAN_PER_DOLLAR = 7.0
"""For estimates: they are compared with spot prices in yuan."""
_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_PRODUCTS = (
    {"tenancy": "Shared"},
    {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
)
"""The products to list: every type is sold with shared tenancy, some bare metal only with dedicated tenancy."""


class _Dimension(WireStruct):
    price_per_unit: dict[str, str] = msgspec.field(default_factory=dict, name="pricePerUnit")


class _Term(WireStruct):
    price_dimensions: dict[str, _Dimension] = msgspec.field(default_factory=dict, name="priceDimensions")


class _Terms(WireStruct):
    on_demand: dict[str, _Term] = msgspec.field(default_factory=dict, name="OnDemand")


class _Product(WireStruct):
    attributes: dict[str, str] = {}


class _PriceListItem(WireStruct):
    product: _Product
    terms: _Terms


_ITEM = msgspec.json.Decoder(_PriceListItem)

_PER_VCPU = 0.036
_PER_GIB = 0.0031
_PER_NVME_GB = 0.00012
_PER_ACCELERATOR = 0.30
_PER_BURSTABLE_GIB = 0.0104
"""The price of t families depends on their memory only."""
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


_IMPLAUSIBLE_FACTOR = 50.0


def is_plausible(price: float, estimate: float) -> bool:
    """Whether a price may be true: within a factor of fifty of the estimate, which is off by less than a tenth of that.

    Nothing is launched or replaced for a price of nothing, in another unit, or of a mistyped digit or two.

    >>> is_plausible(0.03, 0.1), is_plausible(0.0, 0.1), is_plausible(-1.0, 0.1), is_plausible(1e6, 0.1)
    (True, False, False, False)
    """
    return estimate / _IMPLAUSIBLE_FACTOR <= price <= estimate * _IMPLAUSIBLE_FACTOR


def spot_prices(ec2: EC2Client, *, now: datetime) -> dict[str, dict[str, float]]:
    """By instance type and zone: the current spot price for Linux, USD per hour.

    Raises:
        ClientError: EC2 returned an error.
    """
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        StartTime=now, EndTime=now, ProductDescriptions=list(_LINUX), PaginationConfig=PAGES
    )
    for page in pages:
        for entry in page["SpotPriceHistory"]:
            key = (str(entry["InstanceType"]), entry["AvailabilityZone"])
            if key not in latest or entry["Timestamp"] > latest[key][0]:
                latest[key] = (entry["Timestamp"], float(entry["SpotPrice"]))
    prices: dict[str, dict[str, float]] = {}
    for (instance_type, zone), (_, price) in sorted(latest.items()):
        prices.setdefault(instance_type, {})[zone] = price
    return prices


def has_price_list(region: str) -> bool:
    """Whether AWS has a price list that an account of the Region can read. The GovCloud Regions have none."""
    return not region.startswith("us-gov-")


def currency(region: str) -> str:
    """The currency of the Region's prices: USD or CNY."""
    return "CNY" if region.startswith(_CHINA) else "USD"


def on_demand_prices(pricing: PricingClient, *, region: str) -> dict[str, float]:
    """By instance type: the on-demand price for Linux without other software, per hour in the Region's currency.

    Raises:
        ClientError: the Price List returned an error.
        BotoCoreError: the Price List can't be reached.
    """
    common = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    by_type: dict[str, float] = {}
    for product in _PRODUCTS:
        filters: list[Any] = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in {**common, **product}.items()
        ]
        pages = pricing.get_paginator("get_products").paginate(ServiceCode=_SERVICE, Filters=filters)
        for instance_type, price in _prices((text for page in pages for text in page["PriceList"]), currency(region)):
            by_type.setdefault(instance_type, price)
    return dict(sorted(by_type.items()))


def _prices(items: Iterable[str], currency: str) -> Iterator[tuple[str, float]]:
    """Instance type and price of each item that has both; items in another form are skipped."""
    for text in items:
        try:
            item = _ITEM.decode(text)
            prices = [
                float(dimension.price_per_unit[currency])
                for term in item.terms.on_demand.values()
                for dimension in term.price_dimensions.values()
                if currency in dimension.price_per_unit
            ]
        except (msgspec.MsgspecError, ValueError):
            continue
        instance_type = item.product.attributes.get("instanceType")
        positive = [price for price in prices if price > 0]
        if instance_type and positive:
            yield instance_type, min(positive)


def estimated_on_demand_price(hardware: Hardware, *, region: str = "") -> float:
    """The estimated on-demand price, per hour in the Region's currency."""
    family = hardware.name.partition(".")[0]
    if family.startswith("t") and not family.startswith("trn"):
        price = _PER_BURSTABLE_GIB * hardware.memory_mib / 1024
    else:
        price = _PER_VCPU * hardware.vcpus + _PER_GIB * hardware.memory_mib / 1024
    if hardware.arch == "arm64":
        price *= _ARM
    elif hardware.cpu_manufacturer == "amd":
        price *= _AMD
    if "flex" in family:
        price *= _FLEX
    if "n" in family.lstrip("abcdefghijklmnopqrstuvwxyz").lstrip("0123456789"):
        price *= _FAST_NETWORK
    price += _PER_NVME_GB * hardware.nvme_gb
    price += sum(_PER_GPU.get(gpu.name, _OTHER_GPU) * gpu.count for gpu in hardware.gpus)
    price += _PER_ACCELERATOR * sum(device.count for device in hardware.accelerators or hardware.neurons)
    return round(price * (_YUAN_PER_DOLLAR if region.startswith(_CHINA) else 1.0), 4)
