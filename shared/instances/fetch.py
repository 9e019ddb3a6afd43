"""The catalog's parts, from the APIs that have them: types and zones, spot prices, on-demand prices.

Each is fetched on its own, because they change at different speeds and fail apart from each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shared.instances.shape import shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_pricing import PricingClient

    from shared.instances.catalog import Shape

_SERVICE = "AmazonEC2"
_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_PRODUCTS = (
    {"tenancy": "Shared"},
    {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
)
"""What to list: every type is sold as shared, some bare metal only as dedicated."""


class _Dimension(msgspec.Struct):
    price_per_unit: dict[str, str] = msgspec.field(default_factory=dict, name="pricePerUnit")


class _Term(msgspec.Struct):
    price_dimensions: dict[str, _Dimension] = msgspec.field(default_factory=dict, name="priceDimensions")


class _Terms(msgspec.Struct):
    on_demand: dict[str, _Term] = msgspec.field(default_factory=dict, name="OnDemand")


class _Product(msgspec.Struct):
    attributes: dict[str, str] = {}


class _PriceListItem(msgspec.Struct):
    product: _Product
    terms: _Terms


_ITEM = msgspec.json.Decoder(_PriceListItem)


def shapes(ec2: EC2Client) -> tuple[Shape, ...]:
    """Every type of the Region that a node can be made of, by name.

    Raises:
        ClientError: EC2 refused.
    """
    pages = ec2.get_paginator("describe_instance_types").paginate()
    found = [shape(info) for page in pages for info in page["InstanceTypes"]]
    return tuple(sorted((s for s in found if s is not None), key=lambda s: s.name))


def zones(ec2: EC2Client) -> dict[str, str]:
    """The Region's availability zones, name to id.

    Raises:
        ClientError: EC2 refused.
    """
    return {
        zone["ZoneName"]: zone.get("ZoneId", "")
        for zone in ec2.describe_availability_zones()["AvailabilityZones"]
        if zone.get("ZoneType", "availability-zone") == "availability-zone"
    }


def offered(ec2: EC2Client) -> dict[str, tuple[str, ...]]:
    """By type: the zones that have it, sorted.

    Raises:
        ClientError: EC2 refused.
    """
    found: dict[str, set[str]] = {}
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(LocationType="availability-zone")
    for page in pages:
        for offering in page["InstanceTypeOfferings"]:
            found.setdefault(str(offering["InstanceType"]), set()).add(offering["Location"])
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def spot_prices(ec2: EC2Client, *, now: datetime) -> dict[str, dict[str, float]]:
    """By type and zone: the spot price of now for Linux, USD per hour.

    Raises:
        ClientError: EC2 refused.
    """
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        StartTime=now, EndTime=now, ProductDescriptions=list(_LINUX)
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


def on_demand_prices(pricing: PricingClient, *, region: str) -> dict[str, float]:
    """By type: the on-demand price for Linux without other software, USD per hour.

    Raises:
        ClientError: the price list refused.
        BotoCoreError: it can't be reached.
    """
    common = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    found: dict[str, float] = {}
    for product in _PRODUCTS:
        filters: list[Any] = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in {**common, **product}.items()
        ]
        pages = pricing.get_paginator("get_products").paginate(ServiceCode=_SERVICE, Filters=filters)
        for instance_type, price in _prices(text for page in pages for text in page["PriceList"]):
            found.setdefault(instance_type, price)
    return dict(sorted(found.items()))


def _prices(items: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Type and price of each item of a price list that has one; an item that reads otherwise is passed over."""
    for text in items:
        try:
            item = _ITEM.decode(text)
            prices = [
                float(dimension.price_per_unit["USD"])
                for term in item.terms.on_demand.values()
                for dimension in term.price_dimensions.values()
                if "USD" in dimension.price_per_unit
            ]
        except (msgspec.MsgspecError, ValueError):
            continue
        instance_type = item.product.attributes.get("instanceType")
        dear = [price for price in prices if price > 0]
        if instance_type and dear:
            yield instance_type, min(dear)
