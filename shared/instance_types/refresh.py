"""Bringing the catalog up to date: what is stale is fetched, what can't be fetched stays as it was.

Types come every twelve hours with the on-demand prices, spot prices every quarter of an hour. A refresh that was asked
for twice finds everything fresh the second time and asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from shared import aws
from shared.instance_types import pricing
from shared.instance_types.catalog import InstanceTypeCatalog
from shared.instance_types.hardware import parse_hardware

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client

    from shared.instance_types.catalog import Hardware, PriceSource

TYPES_AGE = timedelta(hours=12)
PRICES_AGE = timedelta(minutes=15)
SLACK = timedelta(minutes=2)
"""So much before its age is over something counts as stale: a schedule is not punctual to the second."""
DOUBLED = timedelta(minutes=1)
"""What is younger than this was fetched for the same event, delivered twice."""


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """The catalog, which halves were fetched, and what could not be: a sentence each."""

    catalog: InstanceTypeCatalog
    types: bool
    prices: bool
    problems: tuple[str, ...] = ()


def refresh(before: InstanceTypeCatalog | None, *, asked: str | None, region: str, now: datetime) -> Refreshed:
    """The catalog as of now. ``asked`` is "types", "prices" or None: whatever is stale.

    Raises:
        ClientError: the types can't be fetched, and there are none from before.
        BotoCoreError: the same.
    """
    types = before is None or _due(before.types_at, TYPES_AGE, wanted=asked == "types", now=now)
    prices = before is None or _due(before.prices_at, PRICES_AGE, wanted=asked == "prices", now=now)
    catalog = before or InstanceTypeCatalog(region=region, types_at=now, prices_at=now)
    problems: list[str] = []
    if types:
        catalog = _with_types(catalog, region, now, problems, kept=before is not None)
    if types or (prices and catalog.price_source != "aws"):
        catalog = _with_on_demand(catalog, region, problems)
    if prices:
        catalog = _with_spot(catalog, now, problems)
    return Refreshed(catalog=catalog, types=types, prices=prices, problems=tuple(problems))


def _due(fetched_at: datetime, age: timedelta, *, wanted: bool, now: datetime) -> bool:
    return now - fetched_at >= (DOUBLED if wanted else age - SLACK)


def _with_types(
    catalog: InstanceTypeCatalog, region: str, now: datetime, problems: list[str], *, kept: bool
) -> InstanceTypeCatalog:
    ec2 = aws.ec2()
    try:
        return msgspec.structs.replace(
            catalog,
            region=region,
            types_at=now,
            hardware=_hardware(ec2),
            zones=_zones(ec2),
            offered=_offered(ec2),
        )
    except (ClientError, BotoCoreError) as error:
        if not kept:
            raise
        problems.append(f"instance types stay as of {catalog.types_at:%Y-%m-%d %H:%M}: {error}")
        return catalog


def _with_on_demand(catalog: InstanceTypeCatalog, region: str, problems: list[str]) -> InstanceTypeCatalog:
    """Asked prices; else those from before, estimates for types that had none; else estimates for all."""
    source: PriceSource = "aws"
    try:
        asked = pricing.on_demand_prices(aws.pricing(), region=region)
    except (ClientError, BotoCoreError) as error:
        asked = {}
        problems.append(f"on-demand prices can't be fetched: {error}")
    else:
        if not asked:
            problems.append(f"the price list has no on-demand prices for {region}")
    if not asked:
        was_known = catalog.on_demand and catalog.price_source != "embedded"
        asked, source = (catalog.on_demand, "kept") if was_known else ({}, "embedded")
    return msgspec.structs.replace(
        catalog, on_demand=_complete(asked, catalog.hardware, estimated=source != "aws"), price_source=source
    )


def _complete(prices: dict[str, float], hardware: tuple[Hardware, ...], *, estimated: bool) -> dict[str, float]:
    """With an estimate for types that have no price, if the list itself is not to be had: else they are not sold."""
    missing = (
        {s.name: pricing.estimated_on_demand_price(s) for s in hardware if s.name not in prices} if estimated else {}
    )
    return dict(sorted((prices | missing).items()))


def _with_spot(catalog: InstanceTypeCatalog, now: datetime, problems: list[str]) -> InstanceTypeCatalog:
    try:
        spot = pricing.spot_prices(aws.ec2(), now=now)
    except (ClientError, BotoCoreError) as error:
        problems.append(f"spot prices stay as of {catalog.prices_at:%Y-%m-%d %H:%M}: {error}")
        return catalog
    return msgspec.structs.replace(catalog, spot=spot or catalog.spot, prices_at=now)


def _hardware(ec2: EC2Client) -> tuple[Hardware, ...]:
    """Every type of the Region that a node can be made of, by name.

    Raises:
        ClientError: EC2 refused.
    """
    pages = ec2.get_paginator("describe_instance_types").paginate()
    found = [parse_hardware(info) for page in pages for info in page["InstanceTypes"]]
    return tuple(sorted((s for s in found if s is not None), key=lambda s: s.name))


def _zones(ec2: EC2Client) -> dict[str, str]:
    """The Region's availability zones, name to id.

    Raises:
        ClientError: EC2 refused.
    """
    return {
        zone["ZoneName"]: zone.get("ZoneId", "")
        for zone in ec2.describe_availability_zones()["AvailabilityZones"]
        if zone.get("ZoneType", "availability-zone") == "availability-zone"
    }


def _offered(ec2: EC2Client) -> dict[str, tuple[str, ...]]:
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
