"""CreateFleet's allocation strategy: how EC2 chooses among the overrides. The strategies are Karpenter's."""

from __future__ import annotations

from typing import Any

from shared.api import labels


def allocation_options(capacity_type: str) -> dict[str, Any]:
    """SpotOptions or OnDemandOptions of the CreateFleet call; reserved instances are on-demand ones to EC2."""
    if capacity_type == labels.SPOT:
        return {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}
    return {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}
