"""The catalog: what EC2 has and what it costs, fetched by schedule or when the provisioner finds none, kept in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics

from functions.catalog.settings import CatalogSettings
from shared import aws, hints, metrics, runtime
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.instance_types.refresh import Refreshed, refresh
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
        asked = _asked(event, settings.cluster_name)
    except hints.MalformedHintError as error:
        # Trying it again would not make it clearer, and nothing is lost: the next schedule looks anyway.
        logger.error("A malformed event", extra={"why": str(error)})  # noqa: TRY400 (its trace says nothing)
        metrics.emit(written, {metrics.CATALOG_MALFORMED: 1})
        return
    s3 = aws.s3()
    before: InstanceTypeCatalog | None = None
    try:
        before = catalog_store.load(s3, settings.catalog_bucket, settings.cluster_name, max_age=None)
    except CatalogMissingError as missing:
        logger.info("Making a catalog", extra={"why": str(missing)})
    region = aws.ec2().meta.region_name
    refreshed = refresh(before, asked=asked, region=region, now=runtime.current().now())
    size = 0
    if refreshed.catalog is not before:
        size = catalog_store.save(s3, settings.catalog_bucket, settings.cluster_name, refreshed.catalog)
    _report(refreshed, size)


def _asked(event: dict[str, Any], cluster: str) -> str | None:
    asked = event.get("refresh")
    if asked is None:
        hints.parse(event, cluster=cluster)
        return None
    if asked not in _PARTS:
        raise hints.MalformedHintError(f'refresh is "{asked}", and must be one of {", ".join(sorted(_PARTS))}')
    return str(asked)


def _report(refreshed: Refreshed, size: int) -> None:
    catalog = refreshed.catalog
    for problem in refreshed.problems:
        logger.warning("The catalog is not up to date", extra={"why": problem})
    metrics.emit(
        written,
        {
            metrics.CATALOG_STALE: len(refreshed.problems),
            metrics.CATALOG_NOT_FROM_AWS: int(catalog.price_source != "aws"),
        },
    )
    logger.info(
        "The catalog",
        extra={
            "instance_types": len(catalog.hardware),
            "on_demand_prices": len(catalog.on_demand),
            "price_source": catalog.price_source,
            "spot_prices": sum(len(zones) for zones in catalog.spot.values()),
            "fetched": [part for part, done in (("types", refreshed.types), ("prices", refreshed.prices)) if done],
            "bytes": size,
        },
    )
