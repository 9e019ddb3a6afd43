"""How often spot instances of a pool (an instance type in a zone) are interrupted, as this cluster has seen it.

The interruption function adds the notices of a pool to its row in DynamoDB, with the hours that the pool's instances
have run. Decisions and launches read the rows. What was seen counts half as much after each :data:`HALF_LIFE`, so a
pool that is left alone comes back to the default rate. Losing the rows costs some restarts of pods, nothing else.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.base import dynamodb_rows
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.base.dynamodb_rows import Row

Pool = tuple[str, str]
"""Instance type, zone."""

HALF_LIFE = timedelta(days=3)
"""How long until notices count half: a shortage of spot capacity lasts for days. Tenon's figure."""
RETENTION = 7 * HALF_LIFE
"""How long after the last notice a row is kept: by then it counts less than a hundredth."""
DEFAULT_NOTICES, DEFAULT_HOURS = 0.05, 730.0
"""Notices and instance-hours that every pool starts with: 5 % of instances a month, as if one were seen for a month.

Spot Instance Advisor's lowest class is below 5 % of instances a month; docs/designs/launches.md has the sources."""
DEFAULT_RATE = DEFAULT_NOTICES / DEFAULT_HOURS

PARTITION = "interruptions"
"""Its rows: ``sk`` is type:zone; notices, interrupted_hours (added up), running_hours (the latest), expires."""


class PoolRecord(Struct, kw_only=True):
    """What was seen of a pool until its last notice; ``expires`` is in seconds since 1970, as it is stored."""

    notices: float
    interrupted_hours: float
    running_hours: float
    expires: int

    def weight(self, *, now: datetime) -> float:
        """How much the record counts now, from 1 at its last notice."""
        age = now - (datetime.fromtimestamp(self.expires, UTC) - RETENTION)
        return math.exp2(-(max(age, timedelta()) / HALF_LIFE))


def rate(notices: float, hours: float) -> float:
    """Interruptions of one instance in an hour: those seen and the default, over the hours seen and the default's."""
    return (DEFAULT_NOTICES + notices) / (DEFAULT_HOURS + hours)


def records(dynamodb: DynamoDBClient, table: str, *, now: datetime) -> dict[Pool, PoolRecord]:
    """The records of pools with notices within the retention.

    Raises:
        ClientError: DynamoDB failed.
    """
    return _records(dynamodb_rows.unexpired_rows(dynamodb, table, PARTITION, now=now))


def _records(rows: Iterable[Row]) -> dict[Pool, PoolRecord]:
    by_pool: dict[Pool, PoolRecord] = {}
    for item in rows:
        instance_type, _, zone = item["sk"]["S"].partition(":")
        by_pool[instance_type, zone] = PoolRecord(
            notices=max(0.0, float(item["notices"]["N"])),
            interrupted_hours=max(0.0, float(item["interrupted_hours"]["N"])),
            running_hours=float(item["running_hours"]["N"]),
            expires=int(item["expires"]["N"]),
        )
    return by_pool


def rates(rows: Iterable[Row], *, now: datetime) -> Mapping[Pool, float]:
    """The rates of the pools that have rows; every other pool has :data:`DEFAULT_RATE`.

    They change by the full hour, so that decisions of an hour without notices compare equal prices.
    """
    hour = now.replace(minute=0, second=0, microsecond=0)
    by_pool: dict[Pool, float] = {}
    for pool, record in _records(rows).items():
        weight = record.weight(now=hour)
        by_pool[pool] = rate(weight * record.notices, weight * (record.interrupted_hours + record.running_hours))
    return by_pool
