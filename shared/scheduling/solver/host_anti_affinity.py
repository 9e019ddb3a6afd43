"""Machines for pods that bear no like beside them on a host.

So many of them need so many machines, however small they are. Pods of different rules share these machines, as each
machine costs its daemons and its kernel once; each then becomes the cheapest row that holds its pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import front, holds, holds_each, most
from shared.scheduling.topology.host_counts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.fit import Item
    from shared.scheduling.solver.packing import Lot, Packer
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_AT_ONCE = 256
"""So many seats are looked at together."""
_LEAST = 16
"""But no fewer than so many."""
_DEARER = 1.05
"""Pods share a machine only where neither's share of it becomes dearer than this."""


@dataclass(frozen=True, eq=False)
class _Mix:
    """Kinds that share machines: the rows they may all go to, undominated, and the price of each."""

    number: int
    feasibilities: tuple[Feasibility, ...]
    options: Ints
    price: NDArray[np.float64]
    free: Ints
    custom: int


class Seating:
    """Seats the pods of one run of packing."""

    def __init__(self, packer: Packer, options: Bools) -> None:
        self._packer = packer
        self._options = options
        self._mixes: list[_Mix] = []
        self._joined: dict[tuple[int, object], _Mix | None] = {}
        self._seats: list[list[tuple[Item, list[str]]]] = []

    def seat(self, lots: Sequence[Lot]) -> None:
        """Seats the pods of these lots; the machines are opened in the packer."""
        size = sum(lot.count for lot in lots)
        if not size:
            return
        self._used = np.zeros((size, len(self._packer.launch_options.resources)), np.int64)
        self._mix = np.full(size, -1)
        self._hosts = HostCounts(size)
        demand: dict[int, int] = {}
        for lot in lots:
            for term in lot.feasibility.host.cap:
                demand[term] = demand.get(term, 0) + lot.count
        for lot in sorted(lots, key=lambda x: (-max(demand[t] for t in x.feasibility.host.cap), -x.worth)):
            self._seat_lot(lot)
        self._open()

    def _seat_lot(self, lot: Lot) -> None:
        """Seats a lot beside others where that is fair, fullest seats last, and what is left by itself."""
        taken = len(self._seats)
        mixes = [self._join(i, lot) for i in range(len(self._mixes))]
        fits = np.zeros(taken, np.int64)
        for i, mix in enumerate(mixes):
            if mix is not None:
                where = np.flatnonzero(self._mix[:taken] == i)
                fits[where] = holds(mix.free.max(0) - self._used[where], lot.requests)
        places = np.flatnonzero(fits)
        some = fits[places]
        self._hosts.restrict(some, lot.feasibility.host, places)
        places, some = places[some > 0], some[some > 0]
        order = np.lexsort((places, self._used[places].sum(1)))
        while len(order) and lot.count:
            # No more seats at once than there are pods: most take one, and the rest needn't be looked at.
            chunk, order = np.split(order, [min(max(lot.count, _LEAST), _AT_ONCE)])
            self._share(lot, places[chunk], some[chunk], mixes)
        own = self._own(lot) if lot.count else None
        if own is None:
            return
        each = self._each(own, lot)
        if each:
            made = -(-lot.count // each)
            counts = np.full(made, each)
            counts[-1] = lot.count - each * (made - 1)
            new = np.arange(taken, taken + made)
            self._seats += [[] for _ in range(made)]
            self._mix[new] = own.number
            self._put(lot, new, counts)

    def _each(self, mix: _Mix, lot: Lot) -> int:
        """How many pods of the lot a machine of theirs takes: the most it bears, or so many that one costs least.

        The most may need a dear machine; fewer on each need more machines, which others may not find to share.
        """
        rules = lot.feasibility.host
        bears = min(rules.cap[t] // w for t, w in rules.match.items() if t in rules.cap)
        taken = np.minimum(most(lot.requests, mix.free), bears)
        fullest = int(taken.max())
        if fullest <= 1:
            return fullest
        taken = np.minimum(taken, lot.count)
        cost = np.where(taken > 0, mix.price / np.maximum(taken, 1), np.inf)
        cheapest = int(taken[np.lexsort((-taken, cost))[0]])
        if cheapest == min(fullest, lot.count):
            return fullest
        self._packer.torn = True
        return cheapest if self._packer.cheapest_per_pod else fullest

    def _share(self, lot: Lot, places: Ints, limits: Ints, mixes: Sequence[_Mix | None]) -> None:
        """Puts what fits of a lot into these seats, first seat first; each takes at most its limit."""
        numbers = self._mix[places]
        room = np.zeros(len(places), np.int64)
        for i in np.unique(numbers).tolist():
            mix = mixes[i]
            if mix is not None:
                mine = np.flatnonzero(numbers == i)
                used = self._used[places[mine]]
                if limits[mine].max() == 1:
                    room[mine] = holds_each(mix.free, used + lot.requests).any(1)
                else:
                    free = mix.free[None, :, :] - used[:, None, :]
                    room[mine] = most(lot.requests, free.reshape(-1, free.shape[2])).reshape(len(mine), -1).max(1)
        room = np.minimum(room, limits)
        take = np.minimum(room, lot.count - (np.cumsum(room) - room))
        some = np.flatnonzero(take > 0)
        for at in some.tolist():
            joined = mixes[numbers[at]]
            if joined is not None:
                self._mix[places[at]] = joined.number
        self._put(lot, places[some], take[some])

    def _put(self, lot: Lot, places: Ints, counts: Ints) -> None:
        self._used[places] += counts[:, None] * lot.requests
        self._hosts.add(places, counts, lot.feasibility.host)
        for place, n in zip(places.tolist(), counts.tolist(), strict=True):
            self._seats[place] += lot.take(n)

    def _own(self, lot: Lot) -> _Mix | None:
        key = (-1, lot.feasibility.mask_key)
        if key not in self._joined:
            self._joined[key] = self._made((lot.feasibility,))
        mix = self._joined[key]
        return mix if mix is not None and (mix.free >= lot.requests).all(1).any() else None

    def _join(self, number: int, lot: Lot) -> _Mix | None:
        """The mix with one kind more; None where they can't share, or one of them would pay for it."""
        key = (number, lot.feasibility.mask_key)
        if key not in self._joined:
            before = self._mixes[number]
            if any(k.mask_key == lot.feasibility.mask_key for k in before.feasibilities):
                self._joined[key] = before
            else:
                after = self._made((*before.feasibilities, lot.feasibility))
                alone = self._own(lot)
                self._joined[key] = (
                    after if after is not None and alone is not None and self._fair(after, before, alone) else None
                )
        return self._joined[key]

    def _fair(self, after: _Mix, *before: _Mix) -> bool:
        return _unit(after) <= _DEARER * max(_unit(m) for m in before)

    def _made(self, feasibilities: tuple[Feasibility, ...]) -> _Mix | None:
        launch_options = self._packer.launch_options
        offerings = np.logical_and.reduce([k.offerings for k in feasibilities])
        if not offerings.any():
            return None
        price = launch_options.price[:, offerings].min(1)
        ok = (
            self._options
            & self._packer.limits.allowed_options()
            & np.isfinite(price)
            & np.logical_and.reduce([k.options for k in feasibilities])
        )
        asked = np.stack([k.custom for k in feasibilities])
        custom = asked.max(0)
        ok &= ((asked == 0) | (asked == custom)).all(0)
        options = np.flatnonzero(ok)
        if not len(options):
            return None
        options = options[front(launch_options.free[options], price[options])]
        numbers = set(custom[options].tolist())
        if len(numbers) > 1:
            first = int(custom[options[0]])
            options = options[custom[options] == first]
        made = _Mix(
            len(self._mixes),
            feasibilities,
            options,
            price[options],
            launch_options.free[options],
            int(custom[options[0]]),
        )
        self._mixes.append(made)
        return made

    def _open(self) -> None:
        """Opens each seat as the cheapest row that holds it; one over its pool's limits gives its pods back."""
        limits = self._packer.limits
        planned, version = self._cheapest(range(len(self._seats))), limits.version
        for place, seat in enumerate(self._seats):
            option = planned[place] if limits.version == version else self._cheapest([place])[place]
            if option < 0:
                for item, pods in seat:
                    item.pods[:0] = pods
            else:
                self._packer.open(option, self._mixes[self._mix[place]].custom, seat)

    def _cheapest(self, places: Sequence[int]) -> dict[int, int]:
        """The cheapest row that holds each seat and that limits leave; -1 where there is none."""
        affordable = self._packer.limits.allowed_options()
        found: dict[int, int] = {}
        by_mix: dict[int, list[int]] = {}
        for place in places:
            by_mix.setdefault(int(self._mix[place]), []).append(place)
        for number, members in by_mix.items():
            mix = self._mixes[number]
            open_ = np.flatnonzero(affordable[mix.options])
            open_ = open_[np.argsort(mix.price[open_], kind="stable")]
            for start in range(0, len(members), _AT_ONCE):
                some = members[start : start + _AT_ONCE]
                held = holds_each(mix.free[open_], self._used[some])
                if not held.shape[1]:
                    found.update(dict.fromkeys(some, -1))
                    continue
                at = held.argmax(1)
                any_ = held[np.arange(len(some)), at]
                found.update(zip(some, np.where(any_, mix.options[open_][at], -1).tolist(), strict=True))
        return found


def _unit(mix: _Mix) -> float:
    """The least price of a unit of the mix's rows: for comparing mixes, by the largest of resources."""
    size = mix.free[:, mix.free.sum(0).argmax()].astype(np.float64)
    return float((mix.price / np.maximum(size, 1.0)).min())
