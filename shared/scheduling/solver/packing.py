"""Which machines to buy for a set of pods: the least price, not the first fit.

One machine is chosen at a time: for every row at once, fill it with what is left, worth most first; the row whose
content is worth most for its price wins, and is bought as often as that content repeats. What a pod is worth is its
share of the machine that would serve it most cheaply. Pods of one size and kind are counted, never looped over.

Pods that can't share a host with their like come first: they need many machines whatever their size, and what room
those have left is free for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import Fill, Item, fill_rows, fill_runs, front, holds
from shared.scheduling.solver.residual import Spare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import Market, Pool
    from shared.scheduling.state.node_pool_limits import Limits
    from shared.scheduling.topology.feasibility import Kind

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_FEW = 64
"""Up to so many sizes are filled item by item over all rows; beyond, row by row."""
_STEADY = 0.985
"""A row is bought again unsearched while its content is worth at least so much of what the search found."""
_TINY = 1e-9


@dataclass(eq=False)
class Bin:
    """One machine: the row it is filled to, the offerings it may come from, and what is in it.

    ``reserved``: what it counts for against its pool's limits, where its claim may be no more than that; None where it
    counts as its row.
    """

    row: int
    offerings: Bools
    custom: int
    used: Ints
    content: list[tuple[Item, list[str]]] = field(default_factory=list)
    reserved: Ints | None = None

    def price(self, market: Market) -> float:
        """The least that its row costs in one of its offerings."""
        return float(market.price[self.row][self.offerings].min())

    @property
    def masks(self) -> frozenset[int]:
        """Which machines its pods may go to, as numbers of kinds."""
        return frozenset([item.kind.mask_key for item, _ in self.content])

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of its pods, each once."""
        return list({id(item.kind): item.kind for item, _ in self.content}.values())


def prices(market: Market, bins: Sequence[Bin]) -> Floats:
    """What each bin costs, as its :meth:`Bin.price` says, for many at once."""
    if not bins:
        return np.zeros(0)
    found: Floats = np.where(
        np.stack([b.offerings for b in bins]), market.price[np.array([b.row for b in bins])], np.inf
    ).min(1)
    return found


@dataclass(eq=False)
class Lot:
    """Items of the same size that go to the same machines; counted as one."""

    kind: Kind
    requests: Ints
    worth: float
    items: list[Item]
    count: int

    def take(self, n: int) -> list[tuple[Item, list[str]]]:
        """Takes n pods out of its items, in order."""
        found: list[tuple[Item, list[str]]] = []
        n = min(n, self.count)
        self.count -= n
        for item in self.items:
            if not n:
                break
            some = item.pods[:n]
            if some:
                del item.pods[: len(some)]
                found.append((item, some))
                n -= len(some)
        return found


def lots_of(items: Iterable[Item], *, hosts: bool) -> list[Lot]:
    """The items as lots, worth most first; ``hosts``: those with different rules about hosts stay apart."""
    found: dict[tuple[object, ...], Lot] = {}
    for item in sorted((i for i in items if i.pods and isfinite(i.worth)), key=_order):
        kind = item.kind
        rules = kind.host.key if hosts else ()
        key = (kind.mask_key, rules, item.requests.tobytes())
        lot = found.get(key)
        if lot is None:
            found[key] = Lot(kind, item.requests, item.worth, [item], item.count)
        else:
            lot.items.append(item)
            lot.count += item.count
    return list(found.values())


def _order(item: Item) -> tuple[float, bytes, str]:
    return (-item.worth, item.requests.tobytes(), item.pods[0])


@dataclass(frozen=True)
class Option:
    """Lots that can share machines, the rows they may go to and the offerings these are bought in."""

    lots: Sequence[Lot]
    rows: Ints
    price: Floats
    custom: int

    @cached_property
    def requests(self) -> Ints:
        """What a pod of each lot asks for: lots x resources."""
        return np.stack([x.requests for x in self.lots])

    @cached_property
    def worth(self) -> Floats:
        """What a pod of each lot is worth."""
        return np.array([x.worth for x in self.lots])


class Packer:
    """Buys machines for items. Bins stay open, so that items that come later may use what room they have left.

    ``thrifty``: of pods that bear few of their like on a host, so many come to one that a pod costs least, not as many
    as it bears; ``torn`` says whether that made, or would have made, a difference.
    """

    def __init__(self, market: Market, limits: Limits, *, strict: bool, thrifty: bool = False) -> None:
        self.market = market
        self.limits = limits
        self.strict = strict
        self.thrifty = thrifty
        self.torn = False
        self.bins: list[Bin] = []
        self._chosen: dict[object, list[tuple[Ints, Floats, int]]] = {}

    def pack(self, items: Sequence[Item], weight: int) -> None:
        """Buys from the pools of one weight for what these items still have; what finds none stays in them."""
        tier = np.fromiter((p.weight == weight for p in self.market.pools), np.bool_, len(self.market.pools))
        rows = tier[self.market.pool_of]
        here = {m for m, k in {i.kind.mask_key: i.kind for i in items}.items() if (k.rows & rows).any()}
        mine = [i for i in items if i.pods and isfinite(i.worth) and i.kind.mask_key in here]
        if not mine:
            return
        exclusive = [i for i in mine if any(t in i.kind.host.match for t in i.kind.host.cap)]
        others = [i for i in mine if not any(t in i.kind.host.match for t in i.kind.host.cap)]
        self.top_up(mine)
        if exclusive:
            self._seat(lots_of(exclusive, hosts=True), rows & ~self._choosy())
            self.top_up(others)
            left = [i for i in exclusive if i.pods]
            if left and (rows & self._choosy()).any():
                self._buy_all(lots_of([*others, *left], hosts=True), rows, hosts=True)
                return
        picky = [i for i in others if i.kind.host.cap]
        if picky and len(others) > _FEW:
            apart: dict[object, list[Item]] = {}
            for item in picky:
                apart.setdefault((item.kind.host.key, item.kind.mask_key), []).append(item)
            for alike in apart.values():
                self._buy_all(lots_of(alike, hosts=False), rows, hosts=False)
            self.top_up([i for i in others if not i.kind.host.cap])
            picky = []
            others = [i for i in others if not i.kind.host.cap]
        self._buy_all(lots_of(others, hosts=bool(picky)), rows, hosts=bool(picky))

    def _choosy(self) -> Bools:
        """Which rows are of pools whose claims must keep several values of a label: these are bought by worth alone."""
        pools = np.fromiter((self.strict and bool(p.min_values) for p in self.market.pools), np.bool_)
        found: Bools = pools[self.market.pool_of]
        return found

    # --- buying by worth ---

    def _buy_all(self, lots: list[Lot], rows: Bools, *, hosts: bool) -> None:
        steady: tuple[Option, int, float] | None = None
        while lots:
            again = self._again(steady) if steady is not None and not hosts else None
            if again is not None:
                option, at, counts = again
            else:
                found = self._search(lots, rows, hosts=hosts)
                if found is None:
                    return
                option, at, counts, rate = found
                steady = (
                    (option, at, rate)
                    if len(lots) > _FEW and not self.limits.limited_row(int(option.rows[at]))
                    else None
                )
            self._take(option, at, counts)
            lots = [lot for lot in lots if lot.count]

    def _again(self, steady: tuple[Option, int, float]) -> tuple[Option, int, Ints] | None:
        """The row found last once more, if it fills as well as it did."""
        option, at, rate = steady
        counts = self._fill_one(option, int(option.rows[at]))
        if float(counts @ option.worth) / max(float(option.price[at]), _TINY) < rate * _STEADY:
            return None
        return option, at, counts

    def _fill_one(self, option: Option, row: int) -> Ints:
        lots = option.lots
        had = np.fromiter((x.count for x in lots), np.int64, len(lots))
        by_mask = {x.kind.mask_key: x.kind for x in lots}
        barred = {m for m, k in by_mask.items() if not _allowed(k, row, option.custom)}
        if barred:
            had[np.fromiter((x.kind.mask_key in barred for x in lots), np.bool_, len(lots))] = 0
        where = np.flatnonzero(had)
        counts = np.zeros(len(lots), np.int64)
        if len(where):
            counts[where] = fill_runs(self.market.free[row], option.requests[where], had[where])
        return counts

    def _search(self, lots: Sequence[Lot], rows: Bools, *, hosts: bool) -> tuple[Option, int, Ints, float] | None:
        best: tuple[float, Option, int, Ints] | None = None
        for option in self.options(lots, rows):
            fill = self._fill(option, hosts=hosts)
            rate = fill.worth / np.maximum(option.price, _TINY)
            for at in np.argsort(-rate, kind="stable").tolist():
                if rate[at] <= 0 or (best is not None and rate[at] <= best[0] * (1 + _TINY)):
                    break
                if self._enough(option, at, fill.counts[:, at]):
                    best = (float(rate[at]), option, at, fill.counts[:, at])
                    break
        return None if best is None else (best[1], best[2], best[3], best[0])

    def _fill(self, option: Option, *, hosts: bool) -> Fill:
        free = self.market.free[option.rows]
        if hosts or len(option.lots) <= _FEW:
            items = [as_item(x, x.count, hosts=hosts) for x in option.lots]
            return fill_rows(free, option.rows, items, option.custom)
        counts = np.stack([self._fill_one(option, row) for row in option.rows.tolist()], axis=1)
        return Fill(counts, option.worth @ counts, free)

    def options(self, lots: Sequence[Lot], rows: Bools) -> list[Option]:
        """What may be bought: for each set of lots that can share an offering and custom labels, the rows worth it."""
        found: list[Option] = []
        affordable = rows & self.limits.rows()
        state = affordable.tobytes()
        kinds = list({x.kind.mask_key: x.kind for x in lots}.values())
        for offerings in _distinct_columns(np.stack([k.offerings for k in kinds])):
            here = [k for k in kinds if k.offerings[offerings[0]]]
            if not here:
                continue
            keys = frozenset(k.mask_key for k in here)
            key = (state, keys, offerings.tobytes())
            if key not in self._chosen:
                self._chosen[key] = self._choose(here, affordable, offerings)
            mine = [x for x in lots if x.kind.mask_key in keys]
            found += [Option(mine, chosen, price, custom) for chosen, price, custom in self._chosen[key]]
        return found

    def _choose(self, kinds: Sequence[Kind], affordable: Bools, offerings: Ints) -> list[tuple[Ints, Floats, int]]:
        """The rows worth buying for these kinds in these offerings, their prices, by what is asked of custom labels."""
        price = self.market.price[:, offerings].min(1)
        where = np.flatnonzero(affordable & np.isfinite(price) & np.logical_or.reduce([k.rows for k in kinds]))
        found: list[tuple[Ints, Floats, int]] = []
        for custom in sorted({c for k in kinds for c in np.unique(k.custom[where]).tolist()}):
            chosen = self._worth_it(kinds, where, price, custom)
            if len(chosen):
                found.append((chosen, price[chosen], custom))
        return found

    def _worth_it(self, kinds: Sequence[Kind], rows: Ints, price: Floats, custom: int) -> Ints:
        """The rows that no other row beats: as allowed to the kinds, at least as large, no dearer."""
        market = self.market
        asked = np.stack([k.custom[rows] for k in kinds])
        allowed = np.stack([k.rows[rows] for k in kinds]) & ((asked == 0) | (asked == custom))
        useful = allowed.any(0) & ((asked == custom) & allowed).any(0) if custom else allowed.any(0)
        rows, allowed = rows[useful], allowed[:, useful]
        groups: dict[tuple[int, bytes], list[int]] = {}
        for j, (row, pool) in enumerate(zip(rows.tolist(), market.pool_of[rows].tolist(), strict=True)):
            special = market.pools[pool].min_values or self.limits.limited(pool)
            groups.setdefault((pool if special else -1, allowed[:, j].tobytes()), []).append(row)
        kept: list[int] = []
        for (pool, _), members in groups.items():
            if pool >= 0:
                kept.extend(members)
            else:
                group = np.array(members)
                kept.extend(group[front(market.free[group], price[group])].tolist())
        return np.array(sorted(kept), np.int64)

    def _enough(self, option: Option, at: int, counts: Ints) -> bool:
        """Whether the claim would keep as many different values as its pool asks for."""
        pool = self.market.pools[self.market.pool_of[option.rows[at]]]
        if not pool.min_values or not self.strict:
            return True
        lots = [(x, n) for x, n in zip(option.lots, counts.tolist(), strict=True) if n]
        used = sum((x.requests * n for x, n in lots), np.zeros(len(self.market.resources), np.int64))
        offerings = np.logical_and.reduce([x.kind.offerings for x, _ in lots])
        rows = fitting(self.market, pool, [x.kind for x, _ in lots], used, offerings, option.custom)
        return variety(self.market, pool, rows, offerings)

    def _take(self, option: Option, at: int, counts: Ints) -> None:
        taken = [(lot, n) for lot, n in zip(option.lots, counts.tolist(), strict=True) if n]
        row = int(option.rows[at])
        often = min(lot.count // n for lot, n in taken)
        times = max(1, min(often, self.limits.times(row)))
        for _ in range(times):
            self.open(row, option.custom, [pair for lot, n in taken for pair in lot.take(n)])

    def open(self, row: int, custom: int, content: list[tuple[Item, list[str]]]) -> Bin:
        """Buys one machine with this content."""
        used = np.zeros(len(self.market.resources), np.int64)
        offerings = np.ones(len(self.market.offerings), np.bool_)
        for item, pods in content:
            used += item.requests * len(pods)
            offerings &= item.kind.offerings
        made = Bin(row, offerings, custom, used, content)
        self.bins.append(made)
        self.limits.take(row)
        return made

    # --- pods that want no like beside them ---

    def _seat(self, lots: Sequence[Lot], rows: Bools) -> None:
        """Gives every pod a machine of its own, or one shared with pods of other rules: its floor costs once."""
        from shared.scheduling.solver.host_anti_affinity import Seating  # noqa: PLC0415 (it needs the packer)

        Seating(self, rows).seat(lots)

    # --- room that is left ---

    def top_up(self, items: Sequence[Item]) -> None:
        """Puts pods into what room is left in the bins there are, where that costs nothing."""
        bins = [b for b in self.bins if not (self.strict and self.market.pools[self.market.pool_of[b.row]].min_values)]
        if bins and items:
            spare = Spare(self.market, bins)
            for lot in lots_of(items, hosts=True):
                spare.put(lot)
            spare.close()


def as_item(lot: Lot, count: int, *, hosts: bool) -> Item:
    """So many pods of the lot as one item, for filling; without rules about hosts where nobody holds any."""
    kind = lot.kind if hosts or not lot.kind.host.match else lot.kind.without_rules
    return Item(kind, lot.requests, _Counted(count), lot.worth)


class _Counted(list[str]):
    """Stands for so many pods that needn't be named."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self._n = n

    def __len__(self) -> int:
        return self._n


def _allowed(kind: Kind, row: int, custom: int) -> bool:
    return bool(kind.rows[row]) and int(kind.custom[row]) in {0, custom}


def _distinct_columns(matrix: Bools) -> list[Ints]:
    """The columns of a matrix, equal ones together."""
    groups: dict[bytes, list[int]] = {}
    for j in range(matrix.shape[1]):
        groups.setdefault(matrix[:, j].tobytes(), []).append(j)
    return [np.array(g) for g in groups.values()]


def fitting(market: Market, pool: Pool, kinds: Sequence[Kind], used: Ints, offerings: Bools, custom: int) -> Ints:
    """The pool's rows that hold this much, are allowed to these kinds, and can be had in one of the offerings."""
    distinct = {k.mask_key: k for k in kinds}
    key = (pool.name, frozenset(distinct), offerings.tobytes(), custom)
    rows = market.remembered.get(key)
    if rows is None:
        ok = np.isfinite(market.price[pool.rows][:, offerings]).any(1)
        for kind in distinct.values():
            ask = kind.custom[pool.rows]
            ok &= kind.rows[pool.rows] & ((ask == 0) | (ask == custom))
        rows = market.remembered[key] = np.flatnonzero(ok) + pool.rows.start
    found: Ints = rows[holds(market.free[rows], used)]
    return found


def variety(market: Market, pool: Pool, rows: Ints, offerings: Bools) -> bool:
    """Whether these rows have as many different values of each label as the pool's minValues ask for."""
    return all(len(values_among(market, pool, rows, offerings, key)) >= n for key, n in pool.min_values.items())


def values_among(market: Market, pool: Pool, rows: Ints, offerings: Bools, key: str) -> set[str]:
    """The different values of a label that these rows have in these offerings."""
    if key in market.columns:
        had = np.isfinite(market.price[rows]).any(0) & offerings if len(rows) else np.zeros(len(offerings), np.bool_)
        column = market.columns[key]
        return {column.values[c] for c in column.codes[had].tolist() if c >= 0}
    if key in pool.catalog.type_columns:
        column = pool.catalog.type_columns[key]
        return {column.values[c] for c in column.codes[market.type_of[rows]].tolist() if c >= 0}
    return set(pool.catalog.values_of(key)) or {v for v in pool.state(key).values if not pool.state(key).complement}
