"""Which machines to buy for a set of pods: the least price, not the first fit.

One machine is chosen at a time: for every row at once, fill it with what is left, worth most first; the row whose
content is worth most for its price wins, and is bought as often as that content repeats. What a pod is worth is its
share of the machine that would serve it most cheaply. Everything is judged in arrays over rows; pods of one size and
kind are counted, never looped over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.kinds import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.kinds import Kind
    from shared.scheduling.limits import Limits
    from shared.scheduling.pools import Market, Pool

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(eq=False)
class Item:
    """Pods of one kind and size. ``worth`` is the least that one of them costs, USD per hour.

    ``owner`` and ``where`` (domain values by key) are the planner's, to find its way back from what is left over.
    """

    kind: Kind
    requests: Ints
    pods: list[str]
    worth: float = 0.0
    owner: object = None
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many pods."""
        return len(self.pods)


@dataclass(eq=False)
class Bin:
    """One machine: the row it is filled to, the offerings it may come from, and what is in it."""

    row: int
    offerings: NDArray[np.bool_]
    custom: int
    used: Ints
    content: list[tuple[Item, list[str]]] = field(default_factory=list)

    def price(self, market: Market) -> float:
        """The least that its row costs in one of its offerings."""
        return float(market.price[self.row][self.offerings].min())


@dataclass(frozen=True)
class Fill:
    """How many of each item every row would take, and what that is worth."""

    counts: Ints
    worth: Floats
    free: Ints


def most(requests: Ints, free: Ints) -> Ints:
    """How many pods of this size fit, by row."""
    fits = np.full(len(free), NO_CAP, np.int64)
    for r in np.flatnonzero(requests):
        np.minimum(fits, free[:, r] // requests[r], out=fits)
    return np.maximum(fits, 0, out=fits)


def value(market: Market, items: Sequence[Item]) -> None:
    """Sets what each item's pods are worth: the least share of a machine's price that one takes."""
    rows_free = np.maximum(market.free, 1)
    cheapest: dict[int, Floats] = {}
    for item in items:
        price = cheapest.get(id(item.kind))
        if price is None:
            bought = np.where(item.kind.offerings, market.price, np.inf).min(1, initial=np.inf)
            price = cheapest[id(item.kind)] = np.where(item.kind.rows, bought, np.inf)
        needed = np.flatnonzero(item.requests)
        share = (item.requests[needed] / rows_free[:, needed]).max(1)
        share[share > 1] = np.inf
        with np.errstate(invalid="ignore"):
            costs = price * share
        best = np.nanmin(costs) if len(costs) else np.inf
        item.worth = float(best)


class Packer:
    """Buys machines for items. Bins stay open, so that items that come later may use what room they have left."""

    def __init__(self, market: Market, limits: Limits, *, strict: bool) -> None:
        self.market = market
        self.limits = limits
        self.strict = strict
        self.bins: list[Bin] = []

    def pack(self, items: Sequence[Item], weight: int) -> None:
        """Buys from the pools of one weight for what these items still have; what finds none stays in them."""
        tier = np.fromiter((p.weight == weight for p in self.market.pools), np.bool_, len(self.market.pools))
        rows = tier[self.market.pool_of]
        left = sorted((i for i in items if i.count and np.isfinite(i.worth)), key=_order)
        while left:
            bought = self._buy(left, rows)
            if not bought:
                return
            left = [i for i in left if i.count]

    def _buy(self, items: Sequence[Item], rows: NDArray[np.bool_]) -> bool:
        best: tuple[float, int, Option] | None = None
        for option in self._options(items, rows):
            ranked = np.argsort(-option.rate, kind="stable")
            for at in ranked.tolist():
                rate = float(option.rate[at])
                if rate <= 0 or (best is not None and rate <= best[0] * (1 + 1e-9)):
                    break
                if self._enough(option, at):
                    best = (rate, at, option)
                    break
        if best is None:
            return False
        _, at, option = best
        counts = option.fill.counts[:, at]
        taken = [(item, int(n)) for item, n in zip(option.items, counts, strict=True) if n]
        times = min(item.count // n for item, n in taken)
        row = int(option.rows[at])
        times = max(1, min(times, self.limits.times(row)))
        used = sum((item.requests * n for item, n in taken), np.zeros(len(self.market.resources), np.int64))
        for _ in range(times):
            content = [(item, item.pods[:n]) for item, n in taken]
            for item, n in taken:
                del item.pods[:n]
            self.bins.append(
                Bin(row, _offerings(content, len(self.market.offerings)), option.custom, used.copy(), content)
            )
            self.limits.take(row)
        return True

    def _options(self, items: Sequence[Item], rows: NDArray[np.bool_]) -> list[Option]:
        """What may be bought: for each set of items that can share an offering and custom labels, every row's fill."""
        found: list[Option] = []
        affordable = rows & self.limits.rows()
        for offerings in _distinct_columns(np.stack([i.kind.offerings for i in items])):
            here = [i for i in items if i.kind.offerings[offerings[0]]]
            if not here:
                continue
            price = self.market.price[:, offerings].min(1)
            useful = affordable & np.isfinite(price) & np.logical_or.reduce([i.kind.rows for i in here])
            where = np.flatnonzero(useful)
            for custom in sorted({int(c) for i in here for c in np.unique(i.kind.custom[where])}) if len(where) else ():
                option = self._option(here, _undominated(self.market, here, where, price, custom), price, custom)
                if option is not None:
                    found.append(option)
        return found

    def _option(self, items: Sequence[Item], rows: Ints, price: Floats, custom: int) -> Option | None:
        if not len(rows):
            return None
        fill = _fill(self.market.free[rows], rows, items, custom)
        return Option(items, rows, custom, fill, fill.worth / np.maximum(price[rows], 1e-9))

    def _enough(self, option: Option, at: int) -> bool:
        """Whether the claim would keep as many different values as its pool asks for."""
        pool = self.market.pools[self.market.pool_of[option.rows[at]]]
        if not pool.min_values or not self.strict:
            return True
        counts = option.fill.counts[:, at]
        kinds = [item.kind for item, n in zip(option.items, counts, strict=True) if n]
        used = self.market.free[option.rows[at]] - option.fill.free[at]
        offerings = np.logical_and.reduce([k.offerings for k in kinds])
        return variety(self.market, pool, fitting(self.market, pool, kinds, used, offerings, option.custom), offerings)


@dataclass(frozen=True)
class Option:
    """Items that can share machines, and the rows' worth for their price."""

    items: Sequence[Item]
    rows: Ints
    custom: int
    fill: Fill
    rate: Floats


def _order(item: Item) -> tuple[float, tuple[int, ...], str]:
    return (-item.worth, tuple(-item.requests), item.pods[0])


def _offerings(content: Sequence[tuple[Item, list[str]]], width: int) -> NDArray[np.bool_]:
    found = np.ones(width, np.bool_)
    for item, _ in content:
        found &= item.kind.offerings
    return found


def _distinct_columns(matrix: NDArray[np.bool_]) -> list[Ints]:
    """The columns of a matrix, equal ones together."""
    groups: dict[bytes, list[int]] = {}
    for j in range(matrix.shape[1]):
        groups.setdefault(matrix[:, j].tobytes(), []).append(j)
    return [np.array(g) for g in groups.values()]


def _undominated(market: Market, items: Sequence[Item], rows: Ints, price: Floats, custom: int) -> Ints:
    """The rows that no other row beats: as allowed to the items, at least as large, no dearer."""
    allowed = np.stack(
        [i.kind.rows[rows] & ((i.kind.custom[rows] == 0) | (i.kind.custom[rows] == custom)) for i in items]
    )
    if custom:
        allowed &= np.stack([i.kind.custom[rows] == custom for i in items]).any(0)
    rows, allowed = rows[allowed.any(0)], allowed[:, allowed.any(0)]
    kept: list[int] = []
    groups: dict[tuple[int, bytes], list[int]] = {}
    for j, row in enumerate(rows.tolist()):
        pool = int(market.pool_of[row])
        mine = pool if market.pools[pool].min_values or market.pools[pool].limits else -1
        groups.setdefault((mine, allowed[:, j].tobytes()), []).append(row)
    for (pool, _), members in groups.items():
        group = np.array(members)
        if pool >= 0:
            kept.extend(members)
            continue
        order = group[np.lexsort((group, -market.free[group].sum(1), price[group]))]
        front: list[int] = []
        for row in order.tolist():
            if not front or not (market.free[front] >= market.free[row]).all(1).any():
                front.append(row)
        kept.extend(front)
    return np.array(sorted(kept), np.int64)


def _fill(free: Ints, rows: Ints, items: Sequence[Item], custom: int) -> Fill:
    """Fills every row with the items in their order; hosts' rules hold within each row."""
    free = free.copy()
    counts = np.zeros((len(items), len(rows)), np.int64)
    worth = np.zeros(len(rows))
    present: dict[int, Ints] = {}
    caps: dict[int, Ints] = {}
    for i, item in enumerate(items):
        kind = item.kind
        fits = np.minimum(most(item.requests, free), item.count)
        ask = kind.custom[rows]
        fits[~(kind.rows[rows] & ((ask == 0) | (ask == custom)))] = 0
        host = kind.host
        for term, weight in host.match.items():
            cap = caps.get(term)
            own = host.cap.get(term, NO_CAP)
            if cap is None and own == NO_CAP:
                continue
            limit = np.minimum(cap, own) if cap is not None else own
            np.minimum(fits, np.maximum(limit - present.get(term, 0), 0) // weight, out=fits)
        for term, cap_of_term in host.cap.items():
            if term not in host.match and term in present:
                fits[present[term] > cap_of_term] = 0
        if not fits.any():
            continue
        counts[i] = fits
        free -= fits[:, None] * item.requests
        worth += fits * item.worth
        for term, weight in host.match.items():
            present[term] = present.get(term, 0) + fits * weight
        for term, cap_of_term in host.cap.items():
            before = caps.get(term)
            if before is None:
                before = caps[term] = np.full(len(rows), NO_CAP, np.int64)
            before[fits > 0] = np.minimum(before[fits > 0], cap_of_term)
    return Fill(counts, worth, free)


def fitting(
    market: Market,
    pool: Pool,
    kinds: Sequence[Kind],
    used: Ints,
    offerings: NDArray[np.bool_],
    custom: int,
) -> Ints:
    """The pool's rows that hold this much, are allowed to these kinds, and can be had in one of the offerings."""
    rows = np.arange(pool.rows.start, pool.rows.stop)
    ok = (market.free[pool.rows] >= used).all(1) & np.isfinite(market.price[pool.rows][:, offerings]).any(1)
    for kind in {id(k): k for k in kinds}.values():
        ask = kind.custom[pool.rows]
        ok &= kind.rows[pool.rows] & ((ask == 0) | (ask == custom))
    found: Ints = rows[ok]
    return found


def variety(market: Market, pool: Pool, rows: Ints, offerings: NDArray[np.bool_]) -> bool:
    """Whether these rows have as many different values of each label as the pool's minValues ask for."""
    return all(len(values_among(market, pool, rows, offerings, key)) >= n for key, n in pool.min_values.items())


def values_among(market: Market, pool: Pool, rows: Ints, offerings: NDArray[np.bool_], key: str) -> set[str]:
    """The different values of a label that these rows have in these offerings."""
    if key in market.columns:
        had = np.isfinite(market.price[rows]).any(0) & offerings if len(rows) else np.zeros(len(offerings), np.bool_)
        column = market.columns[key]
        return {column.values[c] for c in column.codes[had].tolist() if c >= 0}
    if key in pool.catalog.type_columns:
        column = pool.catalog.type_columns[key]
        return {column.values[c] for c in column.codes[market.type_of[rows]].tolist() if c >= 0}
    return set(pool.catalog.values_of(key)) or {v for v in pool.state(key).values if not pool.state(key).complement}
