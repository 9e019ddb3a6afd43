"""The shadow function's handler: one run by schedule. An event that comes twice is counted once."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from functions.shadow.observation import observe
from functions.shadow.run import next_record
from functions.shadow.settings import ShadowSettings
from shared.base import aws, hints, runtime
from shared.base.settings import read
from shared.cluster.invocations import entry_point
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError
from shared.shadow import store
from shared.shadow.ledger import date_of
from shared.shadow.store import RecordChangedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from shared.shadow.record import Record

_SEARCH_TIMEOUT = timedelta(seconds=15)
"""As long as the disruption function searches in one run."""

logger = Logger(service="shadow")


@entry_point(logger)
def handle(event: dict[str, Any], context: LambdaContext) -> None:
    """Count the time since the last run, decide, and keep the record."""
    settings = read(ShadowSettings, runtime.current().environ)
    now = runtime.current().now().replace(microsecond=0)
    slot = round((hints.parse(event, cluster=settings.cluster_name).time or now).timestamp())
    bucket, cluster = settings.catalog_bucket, settings.cluster_name
    stored = store.load(aws.s3(), bucket, cluster)
    if stored.problem:
        logger.warning("Shadow mode begins again", extra={"why": stored.problem})
    if stored.record.slot >= slot:
        logger.info("The event was counted before", extra={"slot": slot})
        return
    try:
        catalog = catalog_store.load(aws.s3(), bucket, max_age=None)
    except CatalogMissingError as error:
        logger.info("Shadow mode waits for the catalog", extra={"why": str(error)})
        return
    until = now + timedelta(milliseconds=context.get_remaining_time_in_millis() / 2)
    record = next_record(
        stored.record,
        observe(settings, stored.record, catalog, now=now),
        slot=slot,
        now=now,
        interval=timedelta(minutes=settings.shadow_interval),
        begin_search=partial(_begin_search, until),
    )
    _keep(stored.record, record, settings, etag=stored.etag)


def _begin_search(until: datetime) -> Callable[[], bool]:
    """What ends a search that begins now: its own time-out, or the end of all searches of this run."""
    end = min(until, runtime.current().now() + _SEARCH_TIMEOUT)
    return lambda: runtime.current().now() >= end


def _keep(before: Record, record: Record, settings: ShadowSettings, *, etag: str) -> None:
    """Archive the days that had ended when the last run counted, then write the record."""
    bucket, cluster = settings.catalog_bucket, settings.cluster_name
    for day in before.days:
        if before.at is not None and day.date < date_of(before.at):
            store.archive(aws.s3(), bucket, cluster, day)
    try:
        size = store.save(aws.s3(), bucket, cluster, record, etag=etag)
    except RecordChangedError as error:
        logger.info("Another run has counted this time", extra={"why": str(error)})
        return
    sample = record.days[-1].samples[-1]
    logger.info(
        "Compared the fleets",
        extra={
            "real_nodes": sample.real_nodes,
            "shadow_nodes": sample.shadow_nodes,
            "real_dollars_per_hour": sample.real,
            "shadow_dollars_per_hour": sample.shadow,
            "unplaced": len(record.unplaced),
            "bytes": size,
        },
    )
