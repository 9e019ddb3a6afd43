"""The order in which capacity types are launched, and how EC2 chooses among the overrides of one: its strategy.

Both are Karpenter's: reserved, then spot, then on-demand.
"""

from __future__ import annotations

from typing import Any

from shared.api import labels


def allocation_options(capacity_type: str) -> dict[str, Any]:
    """SpotOptions or OnDemandOptions of the CreateFleet call; reserved instances are on-demand ones to EC2."""
    if capacity_type == labels.SPOT:
        return {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}
    return {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}


LAUNCH_ORDER = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)


def launch_order(*, after: str = "") -> tuple[str, ...]:
    """The capacity types in the order in which they are tried, those after ``after`` only (empty: all)."""
    return LAUNCH_ORDER[LAUNCH_ORDER.index(after) + 1 :] if after else LAUNCH_ORDER
