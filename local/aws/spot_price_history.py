"""DescribeSpotPriceHistory with prices that differ by type and zone, where moto answers a constant."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from local.aws.prices import Prices

_PAGE = 1000
_PRODUCT = "Linux/UNIX"


def page(
    offerings: Sequence[Mapping[str, Any]],
    *,
    prices: Prices,
    now: datetime,
    products: Sequence[str],
    token: str,
) -> dict[str, Any]:
    """One page of the history: the last price of each (type, zone) offered, set within the last hours."""
    wanted = not products or _PRODUCT in products or f"{_PRODUCT} (Amazon VPC)" in products
    known = sorted((str(offering["InstanceType"]), str(offering["Location"])) for offering in offerings if wanted)
    start = int(token or 0)
    history = [
        {
            "InstanceType": instance_type,
            "ProductDescription": _PRODUCT,
            "SpotPrice": f"{prices.spot(instance_type, zone):.6f}",
            "AvailabilityZone": zone,
            "Timestamp": now - timedelta(minutes=37),
        }
        for instance_type, zone in known[start : start + _PAGE]
    ]
    return {"SpotPriceHistory": history, "NextToken": str(start + _PAGE) if start + _PAGE < len(known) else ""}
