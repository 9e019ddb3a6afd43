"""How often spot instances of a pool (an instance type in a zone) are interrupted, as this cluster has seen it.

The interruption function adds the notices of a pool to its row in DynamoDB, with the hours that the pool's instances
have run. A launch reads the rows. They expire a week after the last notice, and then the pool has the default rate
again. Losing them costs some restarts of pods, nothing else.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared import dynamodb_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

Pool = tuple[str, str]
"""Instance type, zone."""

RETENTION = timedelta(days=7)
DEFAULT_NOTICES, DEFAULT_HOURS = 0.05, 730.0
"""Notices and instance-hours that every pool starts with: 5 % of instances a month, as if one were seen for a month.

Spot Instance Advisor's lowest class is below 5 % of instances a month; docs/decisions.md has the sources."""
DEFAULT_RATE = DEFAULT_NOTICES / DEFAULT_HOURS

PARTITION = "interruptions"
"""Its rows: ``sk`` is type:zone; notices, interrupted_hours (added up), running_hours (the latest), expires."""


def rate(notices: float, hours: float) -> float:
    """Interruptions of one instance in an hour: those seen and the default, over the hours seen and the default's."""
    return (DEFAULT_NOTICES + notices) / (DEFAULT_HOURS + hours)


def current(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> Mapping[Pool, float]:
    """The rates of the pools with notices in the last week; every other pool has :data:`DEFAULT_RATE`.

    Raises:
        ClientError: DynamoDB failed.
    """
    rates: dict[Pool, float] = {}
    for item in dynamodb_rows.unexpired_items(dynamodb, table, PARTITION, now=now):
        instance_type, _, zone = item["sk"]["S"].partition(":")
        hours = float(item["interrupted_hours"]["N"]) + float(item["running_hours"]["N"])
        rates[instance_type, zone] = rate(float(item["notices"]["N"]), hours)
    return rates
