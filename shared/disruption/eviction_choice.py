"""The cheapest pods whose eviction frees the resources that a node lacks.

Pods of the same size, cost and budget are exchangeable, so the search decides how many of each class are evicted: depth
first, the cheapest per freed resource first, cut off where no completion is cheaper than the best set so far. Costs are
exact integers. A search that takes too long keeps the best set that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.api.quantity import Resources

_MAX_STEPS = 20_000
"""A tenth of a second; nodes of a hundred pods of ten sizes take a few hundred steps."""


class EvictablePod(Struct, kw_only=True):
    """A pod that may be evicted: what it frees, what that costs, and its PodDisruptionBudget ("" without one)."""

    key: str
    frees: Resources
    cost: int
    budget: str = ""


def cheapest_evictions(
    pods: Sequence[EvictablePod], lacking: Resources, *, allowed: Mapping[str, int]
) -> frozenset[str] | None:
    """The keys of the pods with the least total cost that free what is lacking; of equal cost, the fewest.

    ``allowed`` says how many pods of a budget may be evicted. None: no set of pods frees enough.
    """
    names = sorted(name for name, amount in lacking.items() if amount > 0)
    classes = _classes(pods, names)
    search = _Search(classes=classes, allowed=dict(allowed), rest=_rests(classes, len(names)))
    search.run(0, tuple(lacking[name] for name in names), 0, 0)
    if search.best is None:
        return None
    return frozenset(key for cls, count in zip(classes, search.best, strict=False) for key in cls.keys[:count])


class _Class(Struct):
    frees: tuple[int, ...]
    cost: int
    budget: str
    keys: tuple[str, ...]


class _Rest(Struct):
    """What the classes from one on free together, and their least cost for each resource, as (cost, amount)."""

    total: tuple[int, ...]
    rates: tuple[tuple[int, int], ...]


def _classes(pods: Sequence[EvictablePod], names: Sequence[str]) -> list[_Class]:
    members: dict[tuple[tuple[int, ...], int, str], list[str]] = {}
    for pod in pods:
        frees = tuple(pod.frees.get(name, 0) for name in names)
        if any(frees):
            members.setdefault((frees, pod.cost, pod.budget), []).append(pod.key)
    classes = [_Class(*key, tuple(sorted(keys))) for key, keys in members.items()]
    largest = [max((cls.frees[i] for cls in classes), default=0) or 1 for i in range(len(names))]

    def cost_per_size(cls: _Class) -> tuple[float, int, tuple[str, ...]]:
        size = sum(amount / most for amount, most in zip(cls.frees, largest, strict=True))
        return cls.cost / size, cls.cost, cls.keys

    return sorted(classes, key=cost_per_size)


def _rests(classes: Sequence[_Class], resources: int) -> list[_Rest]:
    """By index: the classes from there on."""
    rests = [_Rest((0,) * resources, ((0, 0),) * resources)]
    for cls in reversed(classes):
        last = rests[-1]
        total = tuple(t + amount * len(cls.keys) for t, amount in zip(last.total, cls.frees, strict=True))
        rates = tuple(_cheaper(rate, (cls.cost, amount)) for rate, amount in zip(last.rates, cls.frees, strict=True))
        rests.append(_Rest(total, rates))
    return rests[::-1]


def _cheaper(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """The rate with the least cost per amount; an amount of 0 frees nothing."""
    if not a[1] or not b[1]:
        return a if a[1] else b
    return a if a[0] * b[1] <= b[0] * a[1] else b


class _Search(MutableStruct, kw_only=True):
    classes: Sequence[_Class]
    allowed: dict[str, int]
    rest: Sequence[_Rest]
    counts: list[int] = []
    steps: int = 0
    best: list[int] | None = None
    least: tuple[int, int] = (0, 0)
    """Cost and number of pods of the best set."""

    def run(self, index: int, lacking: tuple[int, ...], cost: int, number: int) -> None:
        """Decide on the classes from ``index`` on, with this much still lacking."""
        self.steps += 1
        if not any(lacking):
            if self.best is None or (cost, number) < self.least:
                self.best, self.least = list(self.counts), (cost, number)
            return
        if index == len(self.classes) or self.steps > _MAX_STEPS or self._is_hopeless(index, lacking, cost, number):
            return
        cls = self.classes[index]
        most = min(len(cls.keys), _most_useful(cls.frees, lacking))
        if cls.budget:
            most = min(most, self.allowed.get(cls.budget, 0))
        for count in range(most, -1, -1):
            left = tuple(max(0, need - count * amount) for need, amount in zip(lacking, cls.frees, strict=True))
            self.counts.append(count)
            if cls.budget:
                self.allowed[cls.budget] = self.allowed.get(cls.budget, 0) - count
            self.run(index + 1, left, cost + count * cls.cost, number + count)
            if cls.budget:
                self.allowed[cls.budget] += count
            self.counts.pop()

    def _is_hopeless(self, index: int, lacking: tuple[int, ...], cost: int, number: int) -> bool:
        """Whether the classes from here on can't free enough, or not for less than the best set so far."""
        rest = self.rest[index]
        if any(need > total for need, total in zip(lacking, rest.total, strict=True)):
            return True
        if self.best is None:
            return False
        more = max(
            -(-need * rate_cost // amount)
            for need, (rate_cost, amount) in zip(lacking, rest.rates, strict=True)
            if need and amount
        )
        return (cost + more, number + 1) >= self.least


def _most_useful(frees: tuple[int, ...], lacking: tuple[int, ...]) -> int:
    """How many pods of a class free all that it can of what is lacking; more would free nothing."""
    return max(-(-need // amount) if amount else 0 for need, amount in zip(lacking, frees, strict=True))
