"""Refreshes the catalog: what is stale is fetched, what can't be fetched stays as it was.

Instance types are fetched every twelve hours with the on-demand prices, spot prices every quarter of an hour. When an
event is delivered twice, the second refresh finds everything fresh and makes no calls.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from shared.base.aws import PAGES
from shared.base.struct import Struct, with_fields
from shared.instance_types import pricing
from shared.instance_types.catalog import InstanceTypeCatalog
from shared.instance_types.hardware import parse_hardware

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_pricing import PricingClient

    from shared.instance_types.catalog import Hardware, PriceSource

TYPES_MAX_AGE = timedelta(hours=12)
PRICES_MAX_AGE = timedelta(minutes=15)
SCHEDULE_TOLERANCE = timedelta(minutes=2)
"""Something counts as stale this long before its maximum age, because a schedule is not punctual to the second."""
DUPLICATE_EVENT_WINDOW = timedelta(minutes=1)
"""What is younger than this was fetched for the same event, delivered twice."""

_NAMED = 5
"""How many of the prices that can't be true are named."""
_TYPES_PER_PAGE = 100
"""The most that EC2 allows."""


class RefreshResult(Struct, kw_only=True):
    """The catalog, which halves of it were fetched, and a sentence for each part that could not be."""

    catalog: InstanceTypeCatalog
    types: bool
    prices: bool
    problems: tuple[str, ...] = ()


class CatalogClients(Protocol):
    """The AWS clients that the catalog is fetched with: those of :mod:`shared.base.aws`."""

    def ec2(self) -> EC2Client:
        """EC2, for instance types and spot prices."""
        ...

    def pricing(self, region: str) -> PricingClient:
        """The price list with the prices of a Region."""
        ...


def refresh(
    clients: CatalogClients, previous: InstanceTypeCatalog | None, *, requested: str | None, region: str, now: datetime
) -> RefreshResult:
    """The catalog as of now. ``requested`` is "types", "prices" or None: what is stale.

    Raises:
        ClientError: the types can't be fetched, and there is no previous catalog.
        BotoCoreError: the same.
    """
    types = previous is None or _is_due(previous.types_at, TYPES_MAX_AGE, requested=requested == "types", now=now)
    prices = previous is None or _is_due(previous.prices_at, PRICES_MAX_AGE, requested=requested == "prices", now=now)
    catalog = previous or InstanceTypeCatalog(region=region, types_at=now, prices_at=now)
    problems: list[str] = []
    if types:
        catalog = _with_types(clients.ec2(), catalog, region, now, problems, has_previous=previous is not None)
    if types or (prices and catalog.price_source != "aws"):
        catalog = _with_on_demand(clients, catalog, region, problems)
    if prices:
        catalog = _with_spot(clients.ec2(), catalog, now, problems)
    return RefreshResult(catalog=catalog, types=types, prices=prices, problems=tuple(problems))


def _is_due(fetched_at: datetime, max_age: timedelta, *, requested: bool, now: datetime) -> bool:
    return now - fetched_at >= (DUPLICATE_EVENT_WINDOW if requested else max_age - SCHEDULE_TOLERANCE)


def _with_types(
    ec2: EC2Client,
    catalog: InstanceTypeCatalog,
    region: str,
    now: datetime,
    problems: list[str],
    *,
    has_previous: bool,
) -> InstanceTypeCatalog:
    try:
        return with_fields(
            catalog,
            region=region,
            types_at=now,
            hardware=_hardware(ec2),
            zones=_zones(ec2),
            offered=_offered(ec2),
        )
    except (ClientError, BotoCoreError) as error:
        if not has_previous:
            raise
        problems.append(f"instance types stay as of {catalog.types_at:%Y-%m-%d %H:%M}: {error}")
        return catalog


def _with_on_demand(
    clients: CatalogClients, catalog: InstanceTypeCatalog, region: str, problems: list[str]
) -> InstanceTypeCatalog:
    """With the price list's prices; else with the previous ones, and estimates for types without; else estimates."""
    source: PriceSource = "aws"
    prices: dict[str, float] = {}
    try:
        if pricing.has_price_list(region):
            prices = pricing.on_demand_prices(clients.pricing(region), region=region)
    except (ClientError, BotoCoreError) as error:
        problems.append(f"on-demand prices can't be fetched: {error}")
    else:
        if not prices and pricing.has_price_list(region):
            problems.append(f"the price list has no on-demand prices for {region}")
    prices = _plausible_on_demand(prices, catalog, region, problems)
    if not prices:
        has_previous = catalog.on_demand and catalog.price_source != "embedded"
        prices, source = (catalog.on_demand, "kept") if has_previous else ({}, "embedded")
        # A type without a price is left out only if the price list itself has none: it isn't sold then.
        prices = dict(sorted((_estimates(catalog, region) | prices).items()))
    return with_fields(catalog, on_demand=prices, price_source=source)


def _with_spot(ec2: EC2Client, catalog: InstanceTypeCatalog, now: datetime, problems: list[str]) -> InstanceTypeCatalog:
    try:
        spot = pricing.spot_prices(ec2, now=now)
    except (ClientError, BotoCoreError) as error:
        problems.append(f"spot prices stay as of {catalog.prices_at:%Y-%m-%d %H:%M}: {error}")
        return catalog
    spot = _plausible_spot(spot, catalog, problems)
    return with_fields(catalog, spot=spot or catalog.spot, prices_at=now)


def _plausible_on_demand(
    prices: Mapping[str, float], catalog: InstanceTypeCatalog, region: str, problems: list[str]
) -> dict[str, float]:
    """The prices, with the previous price or the estimate in place of one that can't be true."""
    estimates = _estimates(catalog, region)
    replaced = {
        name: catalog.on_demand.get(name, estimates[name])
        for name, price in prices.items()
        if name in estimates and not pricing.is_plausible(price, estimates[name])
    }
    _report_implausible("on-demand", sorted(replaced), problems)
    return {**prices, **replaced}


def _plausible_spot(
    spot: Mapping[str, Mapping[str, float]], catalog: InstanceTypeCatalog, problems: list[str]
) -> dict[str, dict[str, float]]:
    """The prices without those that can't be true: the type has no spot offering there until the next refresh."""
    estimates = _estimates(catalog, catalog.region)
    implausible = {
        (name, zone)
        for name, zones in spot.items()
        for zone, price in zones.items()
        if name in estimates and not pricing.is_plausible(price, estimates[name])
    }
    _report_implausible("spot", sorted(f"{name} in {zone}" for name, zone in implausible), problems)
    kept = {name: {z: p for z, p in zones.items() if (name, z) not in implausible} for name, zones in spot.items()}
    return {name: zones for name, zones in kept.items() if zones}


def _estimates(catalog: InstanceTypeCatalog, region: str) -> dict[str, float]:
    return {h.name: pricing.estimated_on_demand_price(h, region=region) for h in catalog.hardware}


def _report_implausible(capacity_type: str, names: Sequence[str], problems: list[str]) -> None:
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        problems.append(f"{capacity_type} prices that can't be true are ignored: {', '.join(names[:_NAMED])}{more}")


def _hardware(ec2: EC2Client) -> tuple[Hardware, ...]:
    """Every instance type of the Region that a node can have, by name."""
    pages = ec2.get_paginator("describe_instance_types").paginate(PaginationConfig={"PageSize": _TYPES_PER_PAGE})
    parsed = [parse_hardware(info) for page in pages for info in page["InstanceTypes"]]
    return tuple(sorted((h for h in parsed if h is not None), key=lambda h: h.name))


def _zones(ec2: EC2Client) -> dict[str, str]:
    """The Region's availability zones, name to id."""
    return {
        zone["ZoneName"]: zone.get("ZoneId", "")
        for zone in ec2.describe_availability_zones()["AvailabilityZones"]
        if zone.get("ZoneType", "availability-zone") == "availability-zone"
    }


def _offered(ec2: EC2Client) -> dict[str, tuple[str, ...]]:
    """By instance type: the zones that have it, sorted."""
    zones: dict[str, set[str]] = {}
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", PaginationConfig=PAGES
    )
    for page in pages:
        for offering in page["InstanceTypeOfferings"]:
            zones.setdefault(str(offering["InstanceType"]), set()).add(offering["Location"])
    return {name: tuple(sorted(zones[name])) for name in sorted(zones)}
