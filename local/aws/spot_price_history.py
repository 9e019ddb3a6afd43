"""DescribeSpotPriceHistory with prices that differ by type and zone; moto returns a constant.

The answer is written here: it has thousands of entries every 15 minutes of a world's clock, and moto's serializer takes
a second for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from local.aws.prices import Prices

_PAGE_SIZE = 1000
_PRODUCT = "Linux/UNIX"


def page(
    offerings: Sequence[Mapping[str, Any]],
    *,
    prices: Prices,
    now: datetime,
    products: Sequence[str],
    token: str,
) -> str:
    """One page of the history, as EC2's XML: the current price of each offered (type, zone)."""
    includes_linux = not products or _PRODUCT in products or f"{_PRODUCT} (Amazon VPC)" in products
    pools = sorted(
        (str(offering["InstanceType"]), str(offering["Location"])) for offering in offerings if includes_linux
    )
    start = int(token or 0)
    end = start + _PAGE_SIZE
    # As an integer, because botocore reads ISO 8601 ten times as slowly; of the hour, so that worlds have equal pages.
    at = int(now.replace(minute=0, second=0, microsecond=0).timestamp())
    items = "".join(
        f"<item><instanceType>{escape(instance_type)}</instanceType><productDescription>{_PRODUCT}</productDescription>"
        f"<spotPrice>{prices.spot(instance_type, zone):.6f}</spotPrice>"
        f"<availabilityZone>{escape(zone)}</availabilityZone><timestamp>{at}</timestamp></item>"
        for instance_type, zone in pools[start:end]
    )
    next_token = str(end) if end < len(pools) else ""
    return (
        '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{next_token}</nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    )
