"""How EC2 chooses among the overrides of a CreateFleet call: its allocation strategy, by capacity type.

The strategies are Karpenter's. A NodePool's annotation may choose that of spot. EC2 knows nothing of NodeOverlays:
where they set a price, it chooses by priorities instead of prices.
"""

from __future__ import annotations

from typing import Any

from shared.api import labels
from shared.api.spot import PRICE_CAPACITY_OPTIMIZED
from shared.launch.launch_template import INTERRUPTIBLE


def target_capacity_type(capacity_type: str, *, interruptible: bool = False) -> str:
    """DefaultTargetCapacityType of the CreateFleet call; reserved instances are on-demand ones to EC2.

    Instances of ``interruptible`` reservations are not (AWS: "Launch instances into an Interruptible Capacity
    Reservation", EC2 User Guide).
    """
    if interruptible:
        return "reserved-capacity"
    return "spot" if capacity_type == labels.SPOT else "on-demand"


def allocation_options(
    capacity_type: str,
    *,
    interruptible: bool = False,
    prioritized: bool = False,
    spot_strategy: str = PRICE_CAPACITY_OPTIMIZED,
) -> dict[str, Any]:
    """SpotOptions, OnDemandOptions or ReservedCapacityOptions of the CreateFleet call.

    ``prioritized``: the overrides have priorities, which EC2 follows for on-demand instances, and for spot instances by
    best effort after capacity. Else ``spot_strategy`` is that of spot instances.
    """
    if interruptible:
        return {"ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE]}}
    if capacity_type == labels.SPOT:
        return {
            "SpotOptions": {"AllocationStrategy": "capacity-optimized-prioritized" if prioritized else spot_strategy}
        }
    return {"OnDemandOptions": {"AllocationStrategy": "prioritized" if prioritized else "lowest-price"}}
