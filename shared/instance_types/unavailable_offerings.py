"""Offerings that can't be launched now, as EC2's errors showed them: stored for some minutes, for all functions.

They are in DynamoDB, because what one launch learns saves the next one a call. Losing them costs a few calls, nothing
else. Rows that DynamoDB hasn't deleted yet are ignored once they expire.

A quota of vCPUs holds for all types that share it, so what doesn't fit into it is one mark: an offering whose type is
the quota with the least vCPUs that don't fit (``standard>=8``), in any zone. Smaller types may fit, and are tried.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.base import dynamodb_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.base.dynamodb_rows import Row
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import OfferingKey

TTL = timedelta(minutes=3)
"""Karpenter's (docs/facts/karpenter.md, section 4)."""
LASTING_TTL = timedelta(minutes=10)
"""Of offerings that fail for another reason than capacity, which seldom ends by itself."""
RETRY_AFTER = timedelta(seconds=50)
"""Offerings marked longer ago are tried again for pods without another choice: within a minute, by the schedule."""

PARTITION = "unavailable"

_LETTERS = re.compile(r"[a-z]*")
_STANDARD = frozenset("acdhimrtz")
_OF_A_CATEGORY = {"g": "g-vt", "vt": "g-vt", "dl": "dl", "f": "f", "inf": "inf", "trn": "trn", "x": "x"}
_AT_LEAST = ">="
_ANY_ZONE = "*"


def quota_of(instance_type: str) -> str:
    """The quota that counts the type's vCPUs, for each of spot and on-demand.

    Source: "Spot Instance quotas", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html. A
    family of another letter counts as one of its own: if it shares a quota after all, that costs a call.

    >>> quota_of("m7i-flex.large"), quota_of("g6.xlarge"), quota_of("p5.48xlarge"), quota_of("x2idn.large")
    ('standard', 'g-vt', 'p5', 'x')
    """
    family = instance_type.partition(".")[0]
    letters = _LETTERS.match(family)
    category = letters.group() if letters is not None else ""
    if category in _STANDARD:
        return "standard"
    return _OF_A_CATEGORY.get(category, family)


def beyond_quota(capacity_type: str, instance_type: str, vcpus: int) -> OfferingKey:
    """What stands for every offering of the type's quota with that many vCPUs or more.

    >>> beyond_quota("spot", "c7g.2xlarge", 8)
    ('spot', 'standard>=8', '*')
    """
    return (capacity_type, f"{quota_of(instance_type)}{_AT_LEAST}{vcpus}", _ANY_ZONE)


def is_of_quota(offering: OfferingKey) -> bool:
    """Whether it stands for offerings of a quota."""
    return offering[2] == _ANY_ZONE


def with_quotas(unavailable: frozenset[OfferingKey], catalog: InstanceTypeCatalog) -> frozenset[OfferingKey]:
    """The unavailable offerings, with each one of the catalog that its quota has no room for."""
    if not any(map(is_of_quota, unavailable)):
        return unavailable
    return unavailable | {
        (capacity_type, hardware.name, zone)
        for capacity_type, least in _least_vcpus(unavailable).items()
        for hardware in catalog.hardware
        if hardware.vcpus >= least.get(quota_of(hardware.name), hardware.vcpus + 1)
        for zone in catalog.offered.get(hardware.name, ())
    }


def is_covered(capacity_type: str, instance_type: str, vcpus: int, unavailable: Collection[OfferingKey]) -> bool:
    """Whether the quota of the type has no room for it."""
    least = _least_vcpus(unavailable).get(capacity_type, {})
    return vcpus >= least.get(quota_of(instance_type), vcpus + 1)


def _least_vcpus(unavailable: Iterable[OfferingKey]) -> dict[str, dict[str, int]]:
    """The least vCPUs that don't fit, by capacity type and quota."""
    least: dict[str, dict[str, int]] = {}
    for capacity_type, name, _ in filter(is_of_quota, unavailable):
        quota, _, vcpus = name.partition(_AT_LEAST)
        by_quota = least.setdefault(capacity_type, {})
        by_quota[quota] = min(int(vcpus), by_quota.get(quota, int(vcpus)))
    return least


def mark(
    dynamodb: DynamoDBClient,
    table: str,
    offerings: Iterable[OfferingKey],
    *,
    reason: str,
    now: datetime,
    ttl: timedelta = TTL,
) -> None:
    """Store that the offerings can't be launched; ``reason`` says why. Marking again restarts the TTL.

    Raises:
        ClientError: DynamoDB failed.
    """
    expires = str(int((now + ttl).timestamp()))
    dynamodb_rows.put_rows(
        dynamodb,
        table,
        (
            {
                "pk": {"S": PARTITION},
                "sk": {"S": ":".join(offering)},
                "reason": {"S": reason},
                "expires": {"N": expires},
            }
            for offering in dict.fromkeys(offerings)
        ),
    )


def marked_at(rows: Iterable[Row]) -> dict[OfferingKey, datetime]:
    """The offerings of the rows, and when each was marked last (to the second).

    For those with a longer TTL, the time is later by the difference.
    """
    marked: dict[OfferingKey, datetime] = {}
    for item in rows:
        capacity_type, instance_type, zone = item["sk"]["S"].split(":", 2)
        expires = datetime.fromtimestamp(int(item["expires"]["N"]), UTC)
        marked[capacity_type, instance_type, zone] = expires - TTL
    return marked
