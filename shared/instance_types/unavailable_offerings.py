"""Offerings that can't be launched now, as EC2's errors showed them: stored for some minutes, for all functions.

They are in DynamoDB, because what one launch learns saves the next one a call. Losing them costs a few calls, nothing
else. Rows that DynamoDB hasn't deleted yet are ignored once they expire.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.base import dynamodb_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.base.dynamodb_rows import Row
    from shared.instance_types.instance_type import OfferingKey

TTL = timedelta(minutes=3)
"""Karpenter's (docs/facts/karpenter.md, section 4)."""
LASTING_TTL = timedelta(minutes=10)
"""Of offerings that fail for another reason than capacity, which seldom ends by itself."""
RETRY_AFTER = timedelta(seconds=50)
"""Offerings marked longer ago are tried again for pods without another choice: within a minute, by the schedule."""

PARTITION = "unavailable"


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
