"""Machines for pods that bear no like beside them on a host.

So many of them need so many machines, however small they are. Pods of different rules share these machines, as each
machine costs its daemons and its kernel once; each then becomes the cheapest row that holds its pods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.filling import front, most
from shared.scheduling.hosts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.filling import Item
    from shared.scheduling.kinds import Kind
    from shared.scheduling.packing import Lot, Packer

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_DEARER = 1.05
"""Pods share a machine only where neither's share of it becomes dearer than this."""


@dataclass(frozen=True, eq=False)
class _Mix:
    """Kinds that share machines: the rows they may all go to, undominated, and the price of each."""

    number: int
    kinds: tuple[Kind, ...]
    rows: Ints
    price: NDArray[np.float64]
    free: Ints
    custom: int


@dataclass(eq=False)
class _Seat:
    """One machine that is being put together."""

    content: list[tuple[Item, list[str]]] = field(default_factory=list)


class Seating:
    """Seats the pods of one run of packing."""

    def __init__(self, packer: Packer, rows: Bools) -> None:
        self._packer = packer
        self._rows = rows
        self._mixes: list[_Mix] = []
        self._joined: dict[tuple[int, object], _Mix | None] = {}
        self._seats: list[_Seat] = []

    def seat(self, lots: Sequence[Lot]) -> None:
        """Seats the pods of these lots; the machines are opened in the packer."""
        size = sum(lot.count for lot in lots)
        if not size:
            return
        self._used = np.zeros((size, len(self._packer.market.resources)), np.int64)
        self._mix = np.full(size, -1)
        self._hosts = HostCounts(size)
        demand: dict[int, int] = {}
        for lot in lots:
            for term in lot.kind.host.cap:
                demand[term] = demand.get(term, 0) + lot.count
        for lot in sorted(lots, key=lambda x: (-max(demand[t] for t in x.kind.host.cap), -x.worth)):
            self._seat_lot(lot)
        self._open()

    def _seat_lot(self, lot: Lot) -> None:
        mixes = [self._join(i, lot) for i in range(len(self._mixes))]
        shared = np.zeros(len(self._seats), np.int64)
        for i, mix in enumerate(mixes):
            if mix is None:
                continue
            where = np.flatnonzero(self._mix[: len(self._seats)] == i)
            if len(where):
                biggest = mix.free.max(0)
                held = (self._used[where] + lot.requests <= biggest).all(1)
                shared[where] = held
        fits = np.zeros(self._hosts.size, np.int64)
        fits[: len(self._seats)] = shared
        self._hosts.restrict(fits, lot.kind.host)
        places = np.flatnonzero(fits)
        places = places[np.lexsort((places, self._used[places].sum(1)))]
        for place in places.tolist():
            if not lot.count:
                return
            mix = mixes[self._mix[place]]
            if mix is not None:
                n = self._room(mix, lot, self._used[place], int(fits[place]))
                if n:
                    self._put(place, lot, n)
                    self._mix[place] = mix.number
        own = self._own(lot)
        if own is None:
            return
        bears = min(lot.kind.host.cap[t] // w for t, w in lot.kind.host.match.items() if t in lot.kind.host.cap)
        each = self._room(own, lot, np.zeros_like(lot.requests), bears) if bears else 0
        while lot.count and each:
            place = len(self._seats)
            self._seats.append(_Seat())
            self._mix[place] = own.number
            self._put(place, lot, each)

    def _room(self, mix: _Mix, lot: Lot, used: Ints, limit: int) -> int:
        """How many pods of a lot the mix's roomiest row takes beside what is used, at most ``limit``."""
        return min(limit, lot.count, int(most(lot.requests, mix.free - used).max()))

    def _put(self, place: int, lot: Lot, n: int) -> None:
        self._seats[place].content += lot.take(n)
        self._used[place] += lot.requests * n
        self._hosts.add(np.array([place]), np.array([n]), lot.kind.host)

    def _own(self, lot: Lot) -> _Mix | None:
        key = (-1, lot.kind.mask_key)
        if key not in self._joined:
            self._joined[key] = self._made((lot.kind,))
        mix = self._joined[key]
        return mix if mix is not None and (mix.free >= lot.requests).all(1).any() else None

    def _join(self, number: int, lot: Lot) -> _Mix | None:
        """The mix with one kind more; None where they can't share, or one of them would pay for it."""
        key = (number, lot.kind.mask_key)
        if key not in self._joined:
            before = self._mixes[number]
            if any(k.mask_key == lot.kind.mask_key for k in before.kinds):
                self._joined[key] = before
            else:
                after = self._made((*before.kinds, lot.kind))
                alone = self._own(lot)
                self._joined[key] = (
                    after if after is not None and alone is not None and self._fair(after, before, alone) else None
                )
        return self._joined[key]

    def _fair(self, after: _Mix, *before: _Mix) -> bool:
        return _unit(after) <= _DEARER * max(_unit(m) for m in before)

    def _made(self, kinds: tuple[Kind, ...]) -> _Mix | None:
        market = self._packer.market
        offerings = np.logical_and.reduce([k.offerings for k in kinds])
        if not offerings.any():
            return None
        price = market.price[:, offerings].min(1)
        ok = (
            self._rows
            & self._packer.limits.rows()
            & np.isfinite(price)
            & np.logical_and.reduce([k.rows for k in kinds])
        )
        asked = np.stack([k.custom for k in kinds])
        custom = asked.max(0)
        ok &= ((asked == 0) | (asked == custom)).all(0)
        rows = np.flatnonzero(ok)
        if not len(rows):
            return None
        rows = rows[front(market.free[rows], price[rows])]
        numbers = set(custom[rows].tolist())
        if len(numbers) > 1:
            first = int(custom[rows[0]])
            rows = rows[custom[rows] == first]
        made = _Mix(len(self._mixes), kinds, rows, price[rows], market.free[rows], int(custom[rows[0]]))
        self._mixes.append(made)
        return made

    def _open(self) -> None:
        """Opens each seat as the cheapest row that holds it; one over its pool's limits gives its pods back."""
        packer = self._packer
        for place, seat in enumerate(self._seats):
            mix = self._mixes[self._mix[place]]
            ok = (mix.free >= self._used[place]).all(1) & packer.limits.rows()[mix.rows]
            if not ok.any():
                for item, pods in seat.content:
                    item.pods[:0] = pods
                continue
            best = np.flatnonzero(ok)
            row = int(mix.rows[best[np.argmin(mix.price[best])]])
            packer.open(row, mix.custom, seat.content)


def _unit(mix: _Mix) -> float:
    """The least price of a unit of the mix's rows: for comparing mixes, by the largest of resources."""
    size = mix.free[:, mix.free.sum(0).argmax()].astype(np.float64)
    return float((mix.price / np.maximum(size, 1.0)).min())
