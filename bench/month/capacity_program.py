"""The least that capacity can cost in an hour where commitments are in force: a linear program, solved by HiGHS.

Its variables say how many instances run of each type, by what pays them: a purchase of Reserved Instances, a Savings
Plan, the cheapest on-demand offering, or the cheapest spot offering. Reserved Instances cover instances by
normalization factors, Savings Plans by their rates. Fractions of instances are allowed, and a commitment may go to any
instance that it covers, not only to those that AWS's order gives it to. So no bill is lower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import highspy
import numpy as np

from bench.month.catalog import RESOURCES
from shared.api.labels import ON_DEMAND
from shared.base.struct import Struct
from shared.commitments.balance import family_of, normalization_factor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bench.month.catalog import Catalog
    from shared.commitments.commitment import Commitments, ReservedInstances, SavingsPlan

_UNITS = np.array([1000, 2**30, 1, 1], np.float64)
"""A core, a GiB, a pod and a GPU, so that coefficients are of similar size."""


class Column(Struct, kw_only=True):
    """Instances of a type, and what pays them.

    ``price`` is USD per hour of one at the market. Without it, one ``uses`` that amount of the ``commitment`` (its id).
    """

    pool: str
    instance_type: str
    price: float = 0.0
    commitment: str = ""
    uses: float = 0.0


class CapacityProgram:
    """The program of a catalog and commitments; it is solved again for each need, from the optimum before."""

    def __init__(self, catalog: Catalog, commitments: Commitments) -> None:
        self.pools = tuple(catalog.offerings)
        self.columns = (*_uncovered_columns(catalog), *_covered_columns(catalog, commitments))
        self._known: dict[bytes, float] = {}
        self._needs = len(self.pools) * len(RESOURCES)
        self._solver = _solver(self._capacity(catalog), self.columns, _amounts(commitments))

    def least_rate(self, need: NDArray[np.float64]) -> float:
        """USD per hour of the cheapest instances with this capacity, without the fees of the commitments.

        ``need`` has a row of :data:`~bench.month.catalog.RESOURCES` for each pool. Infinite if no type has a resource.
        """
        key = need.tobytes()
        if key not in self._known:
            self._known[key] = self._solve((need / _UNITS).ravel())
        return self._known[key]

    def _solve(self, need: NDArray[np.float64]) -> float:
        solver = self._solver
        for row, least in enumerate(need):
            solver.changeRowBounds(row, float(least), highspy.kHighsInf)
        solver.run()
        if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return float("inf")
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(f"HiGHS ends with {solver.getModelStatus()} for {need.tolist()}")
        return float(solver.getInfo().objective_function_value)

    def solution(self) -> dict[Column, float]:
        """The instances of the last solution by column."""
        values = self._solver.getSolution().col_value
        return {c: n for c, n in zip(self.columns, values, strict=True) if n > 1e-9}

    def _capacity(self, catalog: Catalog) -> NDArray[np.float64]:
        """By column: what one instance adds to each pool's resources."""
        capacity = np.zeros((len(self.columns), len(self.pools), len(RESOURCES)))
        for i, column in enumerate(self.columns):
            offerings = catalog.offerings[column.pool]
            free = offerings.free[offerings.row[column.instance_type]]
            capacity[i, self.pools.index(column.pool)] = free / _UNITS
        return capacity.reshape(len(self.columns), self._needs)


def _solver(capacity: NDArray[np.float64], columns: Sequence[Column], amounts: Mapping[str, float]) -> highspy.Highs:
    solver = highspy.Highs()
    solver.silent()
    for _ in range(capacity.shape[1]):
        solver.addRow(0.0, highspy.kHighsInf, 0, np.array([], np.int32), np.array([]))
    for amount in amounts.values():
        solver.addRow(-highspy.kHighsInf, amount, 0, np.array([], np.int32), np.array([]))
    row = {id_: capacity.shape[1] + i for i, id_ in enumerate(amounts)}
    for column, provided in zip(columns, capacity, strict=True):
        rows = np.flatnonzero(provided)
        entries = {int(r): float(provided[r]) for r in rows}
        if column.uses:
            entries[row[column.commitment]] = column.uses
        values = np.array(list(entries.values()))
        solver.addCol(column.price, 0.0, highspy.kHighsInf, len(entries), np.array(list(entries), np.int32), values)
    return solver


def _uncovered_columns(catalog: Catalog) -> Iterator[Column]:
    """Each type at its cheapest offering of each capacity type."""
    for pool, offerings in catalog.offerings.items():
        cheapest = offerings.price.min(1)
        for type_, prices in zip(offerings.types, cheapest, strict=True):
            for price in prices[np.isfinite(prices)]:
                yield Column(pool=pool, instance_type=type_.name, price=float(price))


def _covered_columns(catalog: Catalog, commitments: Commitments) -> Iterator[Column]:
    """Each type that is sold on demand, by each commitment that covers it."""
    for pool, offerings in catalog.offerings.items():
        for type_ in offerings.types:
            zones = {o.zone for o in type_.offerings if o.capacity_type == ON_DEMAND}
            uses = {r.id: _reserved_use(r, type_.name, zones) for r in commitments.reserved}
            uses |= {p.id: _plan_use(p, type_.name) for p in commitments.plans}
            for id_, used in uses.items():
                if used is not None and zones:
                    yield Column(pool=pool, instance_type=type_.name, commitment=id_, uses=used)


def _reserved_use(bought: ReservedInstances, instance_type: str, zones: set[str]) -> float | None:
    """What an instance takes of a purchase, in instances or normalized units; None if it isn't covered."""
    factor = normalization_factor(instance_type)
    if bought.zone or factor is None:
        is_covered = instance_type == bought.instance_type and (not bought.zone or bought.zone in zones)
        return 1.0 if is_covered else None
    return factor if family_of(instance_type) == family_of(bought.instance_type) else None


def _plan_use(plan: SavingsPlan, instance_type: str) -> float | None:
    """What an instance takes of a plan, in USD per hour; None if it isn't covered."""
    return plan.rates.get(instance_type) if plan.family in ("", family_of(instance_type)) else None


def _amounts(commitments: Commitments) -> dict[str, float]:
    """By id: the instances or normalized units of a purchase, the USD per hour of a plan."""
    amounts = {p.id: p.commitment for p in commitments.plans}
    for bought in commitments.reserved:
        factor = None if bought.zone else normalization_factor(bought.instance_type)
        amounts[bought.id] = bought.count * (1.0 if factor is None else factor)
    return amounts
