"""Spot risk: what interruptions cost, as this cluster has seen them, in the prices that decisions compare. Pure.

The effective price of a spot offering is ``price x (1 + risk x restart cost)``. The risk is the pool's interruptions of
one instance in an hour, less those of a pool in which none was seen. The restart cost is in hours of the node. So the
factor is exactly 1 where nothing was seen. docs/interruptions.md has an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.base.struct import with_fields
from shared.instance_types.interruption_rates import DEFAULT_RATE
from shared.instance_types.provider import Adjustment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.instance_types.instance_type import InstanceType, Offering
    from shared.instance_types.interruption_rates import Pool

RESTART_HOURS = 2 + 10 / 60
"""Hours of a node's price that an interruption of it costs: ten minutes of its work, and the restarts of its pods.

A restart by an interruption costs 0.02 USD (shared/disruption/disruption_cost.py), and a node has a hundred pods for
each USD per hour, such as ten for 0.10 USD per hour: the pods that a price is for aren't known yet."""
_DECIMALS = 4
"""Of the factor: smaller changes of a rate leave the prices equal, so that what is derived from them can be kept."""


def price_factor(rate: float) -> float:
    """What the price of a spot offering is multiplied by, at least 1; ``rate`` in interruptions per hour.

    >>> from shared.instance_types.interruption_rates import rate
    >>> price_factor(DEFAULT_RATE), f"{price_factor(rate(notices=10, hours=10)):.3f}"
    (1.0, '1.029')
    """
    return 1 + round(max(0.0, rate - DEFAULT_RATE) * RESTART_HOURS, _DECIMALS)


def spot_risk(rates: Mapping[Pool, float]) -> Adjustment | None:
    """Adds the risk to the effective prices of spot offerings, by the ``rates`` of pools; None if there is no risk.

    Pools without a rate have the default. Rates that give the same factors are equal inputs.
    """
    factors = {pool: factor for pool, rate in sorted(rates.items()) if (factor := price_factor(rate)) > 1}
    if not factors:
        return None
    risky = {instance_type for instance_type, _ in factors}
    return Adjustment("spot-risk", factors, lambda t: _with_factors(t, factors) if t.name in risky else t)


def _with_factors(instance_type: InstanceType, factors: Mapping[Pool, float]) -> InstanceType:
    def risked(offering: Offering) -> Offering:
        factor = factors.get((instance_type.name, offering.zone), 1.0)
        if offering.capacity_type != labels.SPOT or factor <= 1:
            return offering
        return with_fields(offering, adjusted_price=offering.instance_price * factor)

    return with_fields(instance_type, offerings=tuple(map(risked, instance_type.offerings)))
