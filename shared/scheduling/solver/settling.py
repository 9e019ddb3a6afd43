"""Moves each planned node to the cheapest launch option that holds it, and keeps NodePool limits.

Runs between packing and the NodeClaims: what a claim may list depends on the limits kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import holds, holds_each
from shared.scheduling.solver.packing import fitting, prices, variety

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.packing import Bin, Packer
    from shared.scheduling.state.launch_options import Market, Pool

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_TINY = 1e-12
_AT_ONCE = 1024
"""So many machines are held against all rows at once; bounds the memory that takes."""


def settle(packer: Packer, *, strict: bool) -> None:
    """Moves every machine to the cheapest row that holds what is in it, of any pool of the same weight."""
    market, limits = packer.market, packer.limits
    bins = [b for b in packer.bins if b.reserved is None]
    special = [limits.limited(i) or bool(strict and p.min_values) for i, p in enumerate(market.pools)]
    cheapest = _cheapest(market, bins, [p for p, s in zip(market.pools, special, strict=True) if not s])
    picky = [(i, p) for i, (p, s) in enumerate(zip(market.pools, special, strict=True)) if s]
    for at, (bin_, price_now) in enumerate(zip(bins, prices(market, bins).tolist(), strict=True)):
        best = (price_now, bin_.row)
        if cheapest[at][0] < best[0] - _TINY:
            best = cheapest[at]
        weight = market.pools[market.pool_of[bin_.row]].weight
        for i, pool in picky:
            if pool.weight != weight:
                continue
            rows = fitting(market, pool, bin_.kinds, bin_.used, bin_.offerings, bin_.custom)
            if not len(rows) or (strict and not variety(market, pool, rows, bin_.offerings)):
                continue
            if limits.limited(i):
                same = i == market.pool_of[bin_.row]
                rows = rows[holds(-market.capacity[rows], -market.capacity[bin_.row])] if same else rows[:0]
                if not len(rows):
                    continue
            price = market.price[rows][:, bin_.offerings].min(1)
            first = int(np.lexsort((rows, price))[0])
            if price[first] < best[0] - _TINY:
                best = (float(price[first]), int(rows[first]))
        if best[1] != bin_.row:
            limits.give(bin_.row)
            bin_.row = best[1]
            limits.take(bin_.row)


def _cheapest(market: Market, bins: Sequence[Bin], pools: Sequence[Pool]) -> list[tuple[float, int]]:
    """The price and row of the cheapest of these pools' rows that holds each bin; inf where none does."""
    found = [(np.inf, -1)] * len(bins)
    for pool in pools:
        weighty = [i for i, b in enumerate(bins) if market.pools[market.pool_of[b.row]].weight == pool.weight]
        for members in bins_alike(weighty, bins).values():
            first = bins[members[0]]
            rows, price = by_price(market, pool, first)
            if not len(rows):
                continue
            held = holds_each(market.free[rows], np.stack([bins[i].used for i in members]))
            at = held.argmax(1)
            for i, j, any_ in zip(members, at.tolist(), held[np.arange(len(at)), at].tolist(), strict=True):
                if any_ and price[j] < found[i][0] - _TINY:
                    found[i] = (float(price[j]), int(rows[j]))
    return found


def bins_alike(members: Iterable[int], bins: Sequence[Bin]) -> dict[object, list[int]]:
    """The bins that may come from the same rows in the same offerings, by number."""
    found: dict[object, list[int]] = {}
    for i in members:
        b = bins[i]
        found.setdefault((b.masks, b.offerings.tobytes(), b.custom), []).append(i)
    return {(key, n): some for key, many in found.items() for n, some in enumerate(_slices(many))}


def _slices(members: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(members), _AT_ONCE):
        yield members[start : start + _AT_ONCE]


def by_price(market: Market, pool: Pool, bin_: Bin) -> tuple[Ints, Floats]:
    """The pool's rows that what is in the bin may go to, whatever its size, cheapest first; and their prices."""
    rows = fitting(market, pool, bin_.kinds, np.zeros_like(bin_.used), bin_.offerings, bin_.custom)
    price = market.price[rows][:, bin_.offerings].min(1, initial=np.inf)
    order = np.argsort(price, kind="stable")
    return rows[order], price[order]


def keep_limits(packer: Packer) -> list[Bin]:
    """Bounds what the claims of limited pools may be, where all that fit would pass a limit.

    A claim that can't be had so, as too few types are left for its pool's minValues, comes back.
    """
    market, limits = packer.market, packer.limits
    broken: list[Bin] = []
    for number, pool in enumerate(market.pools):
        mine = [b for b in packer.bins if b.reserved is None and market.pool_of[b.row] == number]
        if not mine or not limits.counted(number):
            continue
        most = limits.most(np.arange(pool.rows.start, pool.rows.stop))
        if limits.affordable_size(number, most * len(mine)):
            continue
        rows = [fitting(market, pool, b.kinds, b.used, b.offerings, b.custom) for b in mine]
        sizes = [limits.most(np.array([b.row])) for b in mine]
        more = sum((limits.most(r) - size for r, size in zip(rows, sizes, strict=True)), np.zeros_like(most))
        if limits.affordable_size(number, more):
            continue
        for bin_, fit, size in zip(mine, rows, sizes, strict=True):
            bound = _bound(packer, number, bin_, fit)
            if bound is None:
                broken.append(bin_)
                bound = size
            limits.reserve(number, bound - size)
            bin_.reserved = bound
    return broken


def loosen(packer: Packer) -> None:
    """Takes the bounds off again, so that machines may change; but where minValues need them."""
    market, limits = packer.market, packer.limits
    for bin_ in packer.bins:
        number = int(market.pool_of[bin_.row])
        if bin_.reserved is not None and not (packer.strict and market.pools[number].min_values):
            limits.release(number, bin_.reserved)
            limits.take(bin_.row)
            bin_.reserved = None


def _bound(packer: Packer, number: int, bin_: Bin, rows: Ints) -> Ints | None:
    """The least that a machine must be allowed to be so that its claim keeps its pool's minValues."""
    market, limits = packer.market, packer.limits
    pool = market.pools[number]
    size = limits.most(np.array([bin_.row]))
    if not packer.strict or not pool.min_values:
        return size
    larger = rows[np.argsort(limits.share(number, rows), kind="stable")]
    for row in (bin_.row, *larger.tolist()):
        most = limits.most(np.array([bin_.row, row]))
        if limits.affordable_size(number, most - size) and variety(
            market, pool, rows[limits.sizes(rows, most)], bin_.offerings
        ):
            return most
    return None
