"""Commitments worth a share of a load's usage: bought where the usage seldom falls below them.

They are regional Reserved Instances of the most used family, an EC2 Instance Savings Plan of the next one, and a
Compute Savings Plan for the rest. Usage is what nodes would cost on demand; what a commitment is worth is the on-demand
price of what it covers. Reserved Instances and the family's plan stay below what their families use nine tenths of the
time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from bench.month.catalog import START
from shared.api.labels import ON_DEMAND
from shared.commitments.balance import family_of
from shared.commitments.commitment import Commitments, ReservedInstances, SavingsPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from bench.month.bill import NodeSpan
    from bench.month.catalog import Catalog

RESERVED_DISCOUNT, FAMILY_DISCOUNT, COMPUTE_DISCOUNT = 0.37, 0.37, 0.27
"""Off the on-demand price, for a year without upfront payment. Source: the comparison on
clozon.com/aws-reserved-instances-vs-savings-plan (standard Reserved Instances 37 %, the least discount 27 %); EC2
Instance Savings Plans are sold at the prices of standard Reserved Instances, Compute Savings Plans at those of
convertible ones."""
FAMILY_SHARE = 0.3
"""Of what is committed, for each of the two families."""
_LOW = 10
"""The percentile of a family's usage that its commitments don't exceed."""
_STEP = 300
_RESERVED_SIZE = "large"
_YEAR = timedelta(days=365)


def on_demand_prices(catalog: Catalog) -> dict[str, float]:
    """USD per hour by instance type."""
    prices: dict[str, float] = {}
    for offerings in catalog.offerings.values():
        cheapest = offerings.price[:, :, offerings.capacity_types.index(ON_DEMAND)].min(1)
        prices.update({t.name: float(p) for t, p in zip(offerings.types, cheapest, strict=True)})
    return prices


def commitments_for(
    spans: Sequence[NodeSpan], prices: Mapping[str, float], *, share: float, seconds: int
) -> Commitments:
    """Commitments worth that share of the nodes' average usage, for the whole of these seconds."""
    usage = _usage_by_family(spans, prices, seconds)
    worth = share * float(sum(u.mean() for u in usage.values()))
    low = {family: float(np.percentile(u, _LOW)) for family, u in usage.items()}
    reserved_family, plan_family = sorted(low, key=lambda f: (-low[f], f))[:2]
    ends = START + timedelta(seconds=seconds) + _YEAR
    reserved = _reserved(prices, reserved_family, min(FAMILY_SHARE * worth, low[reserved_family]), ends)
    for_family = min(FAMILY_SHARE * worth, low[plan_family])
    for_all = worth - reserved.count * prices[reserved.instance_type] - for_family
    of_family = {t: p for t, p in prices.items() if family_of(t) == plan_family}
    compute = SavingsPlan(
        id="compute",
        kind="Compute",
        commitment=for_all * (1 - COMPUTE_DISCOUNT),
        rates={t: p * (1 - COMPUTE_DISCOUNT) for t, p in prices.items()},
        ends=ends,
    )
    family = SavingsPlan(
        id="family",
        kind="EC2Instance",
        family=plan_family,
        commitment=for_family * (1 - FAMILY_DISCOUNT),
        rates={t: p * (1 - FAMILY_DISCOUNT) for t, p in of_family.items()},
        ends=ends,
    )
    return Commitments(fetched_at=START, reserved=(reserved,), plans=(compute, family))


def _reserved(prices: Mapping[str, float], family: str, worth: float, ends: datetime) -> ReservedInstances:
    """Instances of one size of the family, worth at most ``worth`` USD per hour."""
    instance_type = f"{family}.{_RESERVED_SIZE}"
    return ReservedInstances(
        id="reserved",
        instance_type=instance_type,
        count=int(worth / prices[instance_type]),
        hourly=prices[instance_type] * (1 - RESERVED_DISCOUNT),
        ends=ends,
    )


def worth(commitments: Commitments, prices: Mapping[str, float]) -> float:
    """The on-demand price, in USD per hour, of what the commitments cover when they are fully used."""
    reserved = sum(r.count * prices[r.instance_type] for r in commitments.reserved)
    return reserved + sum(
        p.commitment * max(prices[t] / rate for t, rate in p.rates.items()) for p in commitments.plans
    )


def _usage_by_family(
    spans: Sequence[NodeSpan], prices: Mapping[str, float], seconds: int
) -> dict[str, NDArray[np.float64]]:
    """USD per hour at on-demand prices, at each step of five minutes."""
    steps = seconds // _STEP
    change: dict[str, NDArray[np.float64]] = {}
    for span in spans:
        of_family = change.setdefault(family_of(span.instance_type), np.zeros(steps + 1))
        of_family[min(round(span.launched / _STEP), steps)] += prices[span.instance_type]
        of_family[min(round(span.terminated / _STEP), steps)] -= prices[span.instance_type]
    return {family: np.cumsum(c)[:steps] for family, c in change.items()}
