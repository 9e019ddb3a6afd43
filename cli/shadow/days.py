"""Reads the days of shadow mode from the deployment's bucket."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from cli.errors import CommandError
from infra import function_sizes
from infra.cluster import resource_names
from shared.base import aws
from shared.base.settings import variable
from shared.base.struct import Struct
from shared.shadow import store
from shared.shadow.ledger import date_of

if TYPE_CHECKING:
    from datetime import datetime

    from shared.shadow.ledger import Day
    from shared.shadow.record import Record


class ShadowDays(Struct, kw_only=True):
    """The days of a period that shadow mode counted, oldest first, and the record that it has now."""

    cluster: str
    record: Record
    days: tuple[Day, ...]


def read(cluster: str, *, now: datetime, days: int, day: str = "") -> ShadowDays:
    """The last days, today among them, or one day (YYYY-MM-DD).

    Raises:
        CommandError: shadow mode isn't deployed, has not run yet, or has nothing of these days.
        ClientError: AWS refuses a call.
    """
    bucket = _bucket(cluster)
    record = store.load(aws.s3(), bucket, cluster).record
    if record.at is None:
        raise CommandError(
            f"shadow mode of cluster {cluster} has not run yet: it begins when the catalog function has fetched "
            "prices, within a quarter of an hour of the deployment"
        )
    current = {own.date: own for own in record.days}
    dates = [day] if day else [date_of(now - timedelta(days=ago)) for ago in reversed(range(days))]
    stored = (current.get(date) or store.read_day(aws.s3(), bucket, cluster, date) for date in dates)
    counted = tuple(own for own in stored if own is not None)
    if not counted:
        raise CommandError(f"shadow mode of cluster {cluster} has nothing of {' or '.join((dates[0], dates[-1]))}")
    return ShadowDays(cluster=cluster, record=record, days=counted)


def _bucket(cluster: str) -> str:
    """The bucket of the deployment, by its function's environment."""
    client: Any = boto3.client("lambda")
    name = resource_names.function(cluster, function_sizes.SHADOW)
    try:
        configuration = client.get_function_configuration(FunctionName=name)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ResourceNotFoundException":
            raise CommandError(
                f"shadow mode is not deployed for cluster {cluster}: "
                f"npx aws-cdk@2 deploy -c cluster={cluster} -c mode=shadow"
            ) from error
        raise
    return str(configuration["Environment"]["Variables"][variable("catalog_bucket")])
