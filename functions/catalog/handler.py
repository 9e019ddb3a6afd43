"""The catalog function: fetches instance types and prices by schedule, or when the provisioner has no catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from functions.catalog.settings import CatalogSettings
from shared import aws, hints, metrics, runtime
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.refresh import RefreshResult, refresh
from shared.settings import read

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.instance_types.catalog import InstanceTypeCatalog

_PARTS = frozenset({"types", "prices"})

logger = Logger(service="catalog")
written = Metrics(namespace=metrics.NAMESPACE, service="catalog")


@logger.inject_lambda_context
def handle(event: dict[str, Any], context: LambdaContext) -> None:  # noqa: ARG001 (Lambda's signature)
    """Refresh ``{"refresh": "types" | "prices"}``, or after any other event what is stale."""
    settings = read(CatalogSettings, runtime.current().environ)
    try:
        requested = _requested_part(event, settings.cluster_name)
    except hints.MalformedHintError as error:
        # A retry would not help, and nothing is lost: the next schedule refreshes what is stale.
        logger.error("A malformed event", extra={"why": str(error)})  # noqa: TRY400 (its trace says nothing)
        metrics.emit(written, {metrics.CATALOG_MALFORMED: 1})
        return
    s3 = aws.s3()
    previous: InstanceTypeCatalog | None = None
    try:
        previous = catalog_store.load(s3, settings.catalog_bucket, settings.cluster_name, max_age=None)
    except CatalogMissingError as error:
        logger.info("Creating the catalog", extra={"why": str(error)})
    region = aws.ec2().meta.region_name
    result = refresh(previous, requested=requested, region=region, now=runtime.current().now())
    size = 0
    if result.catalog is not previous:
        size = catalog_store.save(s3, settings.catalog_bucket, settings.cluster_name, result.catalog)
    _report(result, size)


def _requested_part(event: dict[str, Any], cluster: str) -> str | None:
    part = event.get("refresh")
    if part is None:
        hints.parse(event, cluster=cluster)
        return None
    if part not in _PARTS:
        raise hints.MalformedHintError(f'refresh is "{part}", and must be one of {", ".join(sorted(_PARTS))}')
    return str(part)


def _report(result: RefreshResult, size: int) -> None:
    catalog = result.catalog
    for problem in result.problems:
        logger.warning("Part of the catalog is stale", extra={"why": problem})
    metrics.emit(
        written,
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
