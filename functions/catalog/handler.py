"""The catalog function: fetches instance types and prices by schedule, or when the provisioner has no catalog.

The one that the clusters of a fleet share also looks each minute at what fleet.py says.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from functions.catalog import commitments, fleet
from functions.catalog.settings import CatalogSettings
from shared.base import aws, hints, metrics, runtime
from shared.base.settings import read
from shared.cluster.invocations import entry_point
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.refresh import RefreshResult, refresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.instance_types.catalog import InstanceTypeCatalog

_MAX_PRICE_AGE = timedelta(hours=1)
"""Prices that can't be refreshed for longer are alarming."""
_PARTS = frozenset({"types", "prices"})
_COMMITMENTS = "commitments"

logger = Logger(service="catalog")
emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="catalog")


@entry_point(logger)
def handle(event: dict[str, Any], context: LambdaContext) -> None:  # noqa: ARG001 (Lambda's signature)
    """Refresh ``{"refresh": "types" | "prices"}``, or after a hint what is stale. ``{"check": "fleet"}`` checks it.

    Where commitments count, ``{"refresh": "commitments"}`` reads them.
    """
    settings = read(CatalogSettings, runtime.current().environ)
    if settings.sweeps_table and event.get("check") == "fleet":
        fleet.check(settings, now=runtime.current().now())
        return
    counts_commitments = settings.commitments == "on"
    if counts_commitments and event.get("refresh") == _COMMITMENTS:
        commitments.refresh(settings.catalog_bucket, runtime=runtime.current(), logger=logger)
        return
    try:
        requested = _requested_part(event, settings.members)
    except hints.MalformedHintError as error:
        # A retry would not help, and nothing is lost: the next schedule refreshes what is stale.
        logger.error("A malformed event", extra={"why": str(error)})  # noqa: TRY400 (its trace says nothing)
        metrics.emit(emf_metrics, {metrics.CATALOG_MALFORMED: 1})
        return
    s3 = aws.s3()
    previous: InstanceTypeCatalog | None = None
    try:
        previous = catalog_store.load(s3, settings.catalog_bucket, max_age=None)
    except CatalogMissingError as error:
        logger.info("Creating the catalog", extra={"why": str(error)})
    region = aws.ec2().meta.region_name
    result = refresh(aws, previous, requested=requested, region=region, now=runtime.current().now())
    size = 0
    if result.catalog is not previous:
        size = catalog_store.save(s3, settings.catalog_bucket, result.catalog)
    _report(result, size)
    if counts_commitments:
        commitments.read_if_missing(settings.catalog_bucket, runtime=runtime.current(), logger=logger)


def _requested_part(event: dict[str, Any], clusters: Sequence[str]) -> str | None:
    part = event.get("refresh")
    if part is None:
        detail = event.get("detail")
        sender = detail.get("cluster") if isinstance(detail, dict) else None
        hints.parse(event, cluster=str(sender) if sender in clusters else ", ".join(clusters))
        return None
    if part not in _PARTS:
        raise hints.MalformedHintError(f'refresh is "{part}", and must be one of {", ".join(sorted(_PARTS))}')
    return str(part)


def _report(result: RefreshResult, size: int) -> None:
    catalog = result.catalog
    for problem in result.problems:
        logger.warning("Part of the catalog is stale", extra={"why": problem})
    age = runtime.current().now() - catalog.prices_at
    if result.problems and age > _MAX_PRICE_AGE:
        metrics.report_unwell("catalog-stale", "; ".join(result.problems), weight=metrics.ALARMING)
    metrics.emit(
        emf_metrics,
        {
            metrics.CATALOG_STALE: len(result.problems),
            metrics.CATALOG_NOT_FROM_AWS: int(catalog.price_source != "aws"),
        },
    )
    logger.info(
        "Refreshed the catalog",
        extra={
            "instance_types": len(catalog.hardware),
            "on_demand_prices": len(catalog.on_demand),
            "price_source": catalog.price_source,
            "spot_prices": sum(len(zones) for zones in catalog.spot.values()),
            "fetched": [part for part, fetched in (("types", result.types), ("prices", result.prices)) if fetched],
            "bytes": size,
        },
    )
