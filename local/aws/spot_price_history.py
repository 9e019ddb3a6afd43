"""DescribeSpotPriceHistory with prices that differ by type and zone; moto returns a constant."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

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
) -> dict[str, Any]:
    """One page of the history: the current price of each offered (type, zone)."""
    includes_linux = not products or _PRODUCT in products or f"{_PRODUCT} (Amazon VPC)" in products
    pools = sorted(
        (str(offering["InstanceType"]), str(offering["Location"])) for offering in offerings if includes_linux
    )
    start = int(token or 0)
    history = [
        {
            "InstanceType": instance_type,
            "ProductDescription": _PRODUCT,
            "SpotPrice": f"{prices.spot(instance_type, zone):.6f}",
            "AvailabilityZone": zone,
            "Timestamp": now - timedelta(minutes=37),
        }
        for instance_type, zone in pools[start : start + _PAGE_SIZE]
    ]
    return {
        "SpotPriceHistory": history,
        "NextToken": str(start + _PAGE_SIZE) if start + _PAGE_SIZE < len(pools) else "",
    }
