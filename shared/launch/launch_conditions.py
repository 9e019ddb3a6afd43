"""What keeps instances from being launched now, or changes what they cost: read in one place for each decision.

It is what launches and interruptions of this cluster have shown, and the account's commitments. NodeOverlays are in the
snapshot, and capacity reservations in the status of node classes. What is seen is in rows of one table, a partition for
each kind; mostly there are none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import aws
from shared.base.struct import Struct
from shared.instance_types import interruption_rates, unavailable_offerings
from shared.launch import boot_failures
from shared.launch.node_class import free_addresses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.base.aws import Row
    from shared.commitments.commitment import Commitments
    from shared.instance_types.instance_type import OfferingKey
    from shared.instance_types.interruption_rates import Pool
    from shared.launch.boot_failures import BootFailure
    from shared.launch.node_class.free_addresses import ShortSubnet


class CommitmentUse(Struct, kw_only=True):
    """The account's active commitments, and the ``cluster`` that may use its ``share`` of what is unused.

    The share is 0 to 1; None: by the cluster's part of the running instances.
    """

    commitments: Commitments
    cluster: str
    share: float | None = None


class LaunchConditions(Struct, kw_only=True):
    """The conditions of launches; by default there are none.

    ``unavailable`` offerings had no capacity. ``short_subnets`` have too few free addresses for a node: their zones
    aren't offered to NodePools that have others. ``interruption_rates`` are by spot pool, where they differ from the
    default: they raise the effective price. ``boot_failures``, by NodePool and node class, are of machines that died at
    boot. ``commitments`` lower prices; None: they don't count.
    """

    unavailable: frozenset[OfferingKey] = frozenset()
    short_subnets: tuple[ShortSubnet, ...] = ()
    interruption_rates: Mapping[Pool, float] = {}
    boot_failures: Mapping[tuple[str, str], BootFailure] = {}
    commitments: CommitmentUse | None = None


def read(
    dynamodb: DynamoDBClient,
    table: str,
    *,
    commitments: CommitmentUse | None,
    now: datetime,
    only_recently_unavailable: bool = False,
) -> LaunchConditions:
    """The conditions that the table keeps now, with these ``commitments``.

    ``only_recently_unavailable``: for pods without another choice. Offerings that had no capacity are tried again after
    a minute, and zones with few free addresses too: EC2 decides.

    Raises:
        ClientError: DynamoDB failed.
    """
    rows = partial(aws.unexpired_rows, dynamodb, table, now=now)
    marked = [*rows(unavailable_offerings.PARTITION, consistent=True)]
    failed = [*rows(boot_failures.PARTITION, consistent=True)]
    interrupted = _or_none(rows(interruption_rates.PARTITION))
    short = [] if only_recently_unavailable else _or_none(rows(free_addresses.PARTITION))
    marked_at = unavailable_offerings.marked_at(marked) if marked else {}
    return LaunchConditions(
        unavailable=frozenset(
            offering
            for offering, at in marked_at.items()
            if not only_recently_unavailable or now - at < unavailable_offerings.RETRY_AFTER
        ),
        short_subnets=free_addresses.remembered(short) if short else (),
        interruption_rates=interruption_rates.rates(interrupted, now=now) if interrupted else {},
        boot_failures=boot_failures.failures_of(failed) if failed else {},
        commitments=commitments,
    )


def _or_none(rows: Iterable[Row]) -> list[Row]:
    """The rows; none if they can't be read: decisions continue with the default rate, and offer every zone."""
    try:
        return [*rows]
    except (ClientError, BotoCoreError):
        return []
