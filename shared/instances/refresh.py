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
from shared.instances import estimate, fetch
from shared.instances.catalog import RawCatalog

if TYPE_CHECKING:
    from datetime import datetime

    from shared.instances.catalog import PriceSource, Shape

TYPES_AGE = timedelta(hours=12)
PRICES_AGE = timedelta(minutes=15)
SLACK = timedelta(minutes=2)
"""So much before its age is over something counts as stale: a schedule is not punctual to the second."""
DOUBLED = timedelta(minutes=1)
"""What is younger than this was fetched for the same event, delivered twice."""


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """The catalog, which halves were fetched, and what could not be: a sentence each."""

    catalog: RawCatalog
    types: bool
    prices: bool
    problems: tuple[str, ...] = ()


def refresh(before: RawCatalog | None, *, asked: str | None, region: str, now: datetime) -> Refreshed:
    """The catalog as of now. ``asked`` is "types", "prices" or None: whatever is stale.

    Raises:
        ClientError: the types can't be fetched, and there are none from before.
        BotoCoreError: the same.
    """
    types = before is None or _due(before.types_at, TYPES_AGE, wanted=asked == "types", now=now)
    prices = before is None or _due(before.prices_at, PRICES_AGE, wanted=asked == "prices", now=now)
    catalog = before or RawCatalog(region=region, types_at=now, prices_at=now)
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


def _with_types(catalog: RawCatalog, region: str, now: datetime, problems: list[str], *, kept: bool) -> RawCatalog:
    ec2 = aws.ec2()
    try:
        return msgspec.structs.replace(
            catalog,
            region=region,
            types_at=now,
            shapes=fetch.shapes(ec2),
            zones=fetch.zones(ec2),
            offered=fetch.offered(ec2),
        )
    except (ClientError, BotoCoreError) as error:
        if not kept:
            raise
        problems.append(f"instance types stay as of {catalog.types_at:%Y-%m-%d %H:%M}: {error}")
        return catalog


def _with_on_demand(catalog: RawCatalog, region: str, problems: list[str]) -> RawCatalog:
    """Asked prices; else those from before, estimates for types that had none; else estimates for all."""
    source: PriceSource = "aws"
    try:
        asked = fetch.on_demand_prices(aws.pricing(), region=region)
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
        catalog, on_demand=_complete(asked, catalog.shapes, estimated=source != "aws"), price_source=source
    )


def _complete(prices: dict[str, float], shapes: tuple[Shape, ...], *, estimated: bool) -> dict[str, float]:
    """With an estimate for types that have no price, if the list itself is not to be had: else they are not sold."""
    missing = {s.name: estimate.on_demand(s) for s in shapes if s.name not in prices} if estimated else {}
    return dict(sorted((prices | missing).items()))


def _with_spot(catalog: RawCatalog, now: datetime, problems: list[str]) -> RawCatalog:
    try:
        spot = fetch.spot_prices(aws.ec2(), now=now)
    except (ClientError, BotoCoreError) as error:
        problems.append(f"spot prices stay as of {catalog.prices_at:%Y-%m-%d %H:%M}: {error}")
        return catalog
    return msgspec.structs.replace(catalog, spot=spot or catalog.spot, prices_at=now)
