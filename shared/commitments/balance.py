"""What is left of commitments once some instances run, and what one more instance costs then. Pure.

AWS applies zonal Reserved Instances first, then regional ones, to the smallest instances of a family first. What they
leave goes to Savings Plans: those for a family before those for all, the highest discount first. Source: "How Reserved
Instance discounts are applied" in the EC2 user guide, "How Savings Plans apply to your usage" in the Savings Plans
user guide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.commitments.commitment import Commitments, InstanceKind, ReservedInstances, SavingsPlan

_UNITS = {"nano": 0.25, "micro": 0.5, "small": 1.0, "medium": 2.0, "large": 4.0, "xlarge": 8.0}
_NOT_SIZE_FLEXIBLE = frozenset(
    {"g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "gr6", "gr6f", "hpc7a", "inf1", "inf2", "p5"}
)
"""Families whose regional Reserved Instances cover no other size. Source: the same page of the EC2 user guide."""
_MULTIPLE = re.compile(r"([0-9]+)xlarge")
_TINY = 1e-9


def normalization_factor(instance_type: str) -> float | None:
    """What an instance counts of its family's regional Reserved Instances; None where sizes aren't exchangeable."""
    family, _, size = instance_type.partition(".")
    if family in _NOT_SIZE_FLEXIBLE or family.startswith("u"):
        return None
    multiple = _MULTIPLE.fullmatch(size.removeprefix("metal-").replace("xl", "xlarge") if "metal-" in size else size)
    return 8.0 * int(multiple[1]) if multiple else _UNITS.get(size)


def family_of(instance_type: str) -> str:
    """``m7g`` of ``m7g.large``."""
    return instance_type.partition(".")[0]


class _OpenPlan(MutableStruct, kw_only=True):
    """A Savings Plan and what is left of it, in USD per hour."""

    plan: SavingsPlan
    left: float

    def rate(self, instance_type: str) -> float | None:
        """What an instance uses of it, in USD per hour; None if it doesn't apply."""
        if self.plan.family not in ("", family_of(instance_type)):
            return None
        return self.plan.rates.get(instance_type)

    def take(self, instance_type: str, count: float) -> float:
        """Use it for that many instances; how many it covers."""
        rate = self.rate(instance_type)
        if rate is None or self.left <= _TINY or count <= 0:
            return 0.0
        covered = min(count, self.left / rate) if rate > 0 else count
        self.left = max(0.0, self.left - covered * rate)
        return covered


class Balance(MutableStruct, kw_only=True):
    """What is left: of Reserved Instances, and of plans.

    ``reserved`` is by (instance type, zone), (instance type, "") where it covers no other size, and (family, "") in
    normalized units.
    """

    reserved: dict[tuple[str, str], float] = {}
    plans: list[_OpenPlan] = []

    @classmethod
    def of(cls, commitments: Commitments) -> Balance:
        """All of the commitments."""
        balance = cls()
        for bought in commitments.reserved:
            key, each = reserved_key(bought)
            balance.reserved[key] = balance.reserved.get(key, 0.0) + bought.count * each
        plans = sorted(commitments.plans, key=lambda p: (not p.family, p.id))
        balance.plans = [_OpenPlan(plan=p, left=p.commitment) for p in plans]
        return balance

    def copy(self) -> Balance:
        """Another one with the same amounts."""
        return self.times(1.0)

    def times(self, share: float) -> Balance:
        """That share of each amount."""
        return Balance(
            reserved={key: amount * share for key, amount in self.reserved.items()},
            plans=[_OpenPlan(plan=p.plan, left=p.left * share) for p in self.plans],
        )

    def minus(self, subtracted: Balance) -> Balance:
        """Each amount less that of a balance of the same commitments."""
        return Balance(
            reserved={key: amount - subtracted.reserved[key] for key, amount in self.reserved.items()},
            plans=[
                _OpenPlan(plan=p.plan, left=p.left - s.left) for p, s in zip(self.plans, subtracted.plans, strict=True)
            ],
        )

    @property
    def key(self) -> tuple[tuple[object, float], ...]:
        """Equal for balances that price instances alike."""
        amounts = [*self.reserved.items(), *((p.plan.id, p.left) for p in self.plans)]
        return tuple((of, round(amount, 6)) for of, amount in amounts)

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left."""
        return all(amount <= _TINY for amount in (*self.reserved.values(), *(p.left for p in self.plans)))

    def uncovered_share(self, kind: InstanceKind) -> float:
        """The share of one more instance that no commitment would pay."""
        rest = 1.0
        for key, each in _reserved_for(kind):
            rest -= min(rest, self.reserved.get(key, 0.0) / each)
        for plan in self.plans:
            rate = plan.rate(kind[0])
            if rest > 0 and rate is not None and plan.left > _TINY:
                rest -= min(rest, plan.left / rate) if rate > 0 else rest
        return rest if rest > _TINY else 0.0

    def take(self, kind: InstanceKind, count: float = 1.0) -> float:
        """Use what is left for that many instances; how many of them no commitment pays."""
        rest = self.take_reserved(kind, count)
        for plan in self.plans:
            rest -= plan.take(kind[0], rest)
        return rest if rest > _TINY else 0.0

    def take_reserved(self, kind: InstanceKind, count: float) -> float:
        """As :meth:`take`, of Reserved Instances only."""
        for key, each in _reserved_for(kind):
            left = self.reserved.get(key, 0.0)
            if left > _TINY and count > 0:
                covered = min(count, left / each)
                self.reserved[key] = left - covered * each
                count -= covered
        return count


def reserved_key(bought: ReservedInstances) -> tuple[tuple[str, str], float]:
    """The key of a purchase in :attr:`Balance.reserved`, and what one of its instances counts there."""
    factor = normalization_factor(bought.instance_type)
    if bought.zone or factor is None:
        return (bought.instance_type, bought.zone), 1.0
    return (family_of(bought.instance_type), ""), factor


def _reserved_for(kind: InstanceKind) -> list[tuple[tuple[str, str], float]]:
    """The keys whose Reserved Instances cover such an instance, in order, and what it uses of each."""
    keys = [(kind, 1.0), ((kind[0], ""), 1.0)]
    factor = normalization_factor(kind[0])
    return keys if factor is None else [*keys, ((family_of(kind[0]), ""), factor)]


class Bill(Struct, kw_only=True):
    """What on-demand instances cost, in USD per hour.

    ``committed`` is paid in any case, ``unused`` is the part of it that covers nothing, and ``uncovered`` is the list
    price of what commitments don't cover. ``covered`` is how many instances of a kind are covered.
    """

    committed: float
    unused: float
    uncovered: float
    covered: Mapping[InstanceKind, float]

    @property
    def total(self) -> float:
        """All that is paid."""
        return self.committed + self.uncovered


def bill(commitments: Commitments, usage: Mapping[InstanceKind, float], on_demand: Mapping[str, float]) -> Bill:
    """The bill for these instances in the order in which AWS applies commitments; ``on_demand`` prices by type.

    An instance type without a price counts as if it cost nothing.
    """
    balance = Balance.of(commitments)
    rest = dict(usage)
    for kind in sorted(rest, key=lambda k: (normalization_factor(k[0]) or 0.0, k)):
        rest[kind] = balance.take_reserved(kind, rest[kind])
    for plan in balance.plans:
        for kind in sorted(rest, key=lambda k: (_discounted(plan, k, on_demand), k)):
            rest[kind] -= plan.take(kind[0], rest[kind])
    return Bill(
        committed=sum(r.hourly * r.count for r in commitments.reserved) + sum(p.commitment for p in commitments.plans),
        unused=_unused(commitments, balance),
        uncovered=sum(count * on_demand.get(kind[0], 0.0) for kind, count in rest.items()),
        covered={kind: usage[kind] - count for kind, count in rest.items()},
    )


def _discounted(plan: _OpenPlan, kind: InstanceKind, on_demand: Mapping[str, float]) -> float:
    """The plan's rate as a share of the list price; the plan goes to the lowest share first."""
    rate, price = plan.rate(kind[0]), on_demand.get(kind[0])
    return rate / price if rate is not None and price else float("inf")


def _unused(commitments: Commitments, balance: Balance) -> float:
    """USD per hour that is paid for nothing: what is left of plans, and of Reserved Instances at what each costs."""
    bought = Balance.of(commitments)
    unused = sum(p.left for p in balance.plans)
    for purchase in commitments.reserved:
        key, _ = reserved_key(purchase)
        if bought.reserved[key] > 0:
            unused += purchase.hourly * purchase.count * balance.reserved[key] / bought.reserved[key]
    return unused
