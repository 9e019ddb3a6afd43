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

from shared.scheduling.solver.fit import Fill, Item, RunFill, fill_options, front, holds
from shared.scheduling.solver.residual import Spare
from shared.scheduling.state.min_values import satisfies_min_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate
    from shared.scheduling.state.node_pool_limits import NodePoolLimits
    from shared.scheduling.topology.feasibility import Feasibility

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

    option: int
    offerings: Bools
    custom: int
    used: Ints
    content: list[tuple[Item, list[str]]] = field(default_factory=list)
    reserved: Ints | None = None

    def price(self, launch_options: LaunchOptions) -> float:
        """The least that its row costs in one of its offerings."""
        return float(launch_options.price[self.option][self.offerings].min())

    @property
    def masks(self) -> frozenset[int]:
        """Which machines its pods may go to, as numbers of kinds."""
        return frozenset([item.feasibility.mask_key for item, _ in self.content])

    @property
    def feasibilities(self) -> list[Feasibility]:
        """The kinds of its pods, each once."""
        return list({id(item.feasibility): item.feasibility for item, _ in self.content}.values())


def prices(launch_options: LaunchOptions, bins: Sequence[Bin]) -> Floats:
    """What each bin costs, as its :meth:`Bin.price` says, for many at once."""
    if not bins:
        return np.zeros(0)
    found: Floats = np.where(
        np.stack([b.offerings for b in bins]), launch_options.price[np.array([b.option for b in bins])], np.inf
    ).min(1)
    return found


@dataclass(eq=False)
class Lot:
    """Items of the same size that go to the same machines; counted as one."""

    feasibility: Feasibility
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
        feasibility = item.feasibility
        rules = feasibility.host.key if hosts else ()
        key = (feasibility.mask_key, rules, item.requests.tobytes())
        lot = found.get(key)
        if lot is None:
            found[key] = Lot(feasibility, item.requests, item.worth, [item], item.count)
        else:
            lot.items.append(item)
            lot.count += item.count
    return list(found.values())


def _order(item: Item) -> tuple[float, bytes, str]:
    return (-item.worth, item.requests.tobytes(), item.pods[0])


@dataclass(frozen=True)
class OptionSet:
    """Lots that can share machines, the rows they may go to and the offerings these are bought in."""

    lots: Sequence[Lot]
    options: Ints
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

    @cached_property
    def masks(self) -> Ints:
        """The ``mask_key`` of each lot's kind."""
        return np.array([x.feasibility.mask_key for x in self.lots], np.int64)

    @cached_property
    def feasibilities(self) -> dict[int, Feasibility]:
        """One feasibility for each ``mask_key``."""
        return {x.feasibility.mask_key: x.feasibility for x in self.lots}


class Packer:
    """Buys machines for items. Bins stay open, so that items that come later may use what room they have left.

    ``cheapest_per_pod``: of pods of which a host may run only a few, as many share a host as makes a pod cheapest, not
    as many as may; ``torn`` says whether that makes a difference.
    """

    def __init__(
        self, launch_options: LaunchOptions, limits: NodePoolLimits, *, strict: bool, cheapest_per_pod: bool = False
    ) -> None:
        self.launch_options = launch_options
        self.limits = limits
        self.strict = strict
        self.cheapest_per_pod = cheapest_per_pod
        self.torn = False
        self.bins: list[Bin] = []
        self._chosen: dict[object, list[tuple[Ints, Floats, int]]] = {}

    def pack(self, items: Sequence[Item], weight: int) -> None:
        """Buys from the pools of one weight for what these items still have; what finds none stays in them."""
        tier = np.fromiter(
            (p.weight == weight for p in self.launch_options.templates), np.bool_, len(self.launch_options.templates)
        )
        options = tier[self.launch_options.template_of]
        here = {
            m for m, k in {i.feasibility.mask_key: i.feasibility for i in items}.items() if (k.options & options).any()
        }
        mine = [i for i in items if i.pods and isfinite(i.worth) and i.feasibility.mask_key in here]
        if not mine:
            return
        exclusive = [i for i in mine if any(t in i.feasibility.host.match for t in i.feasibility.host.cap)]
        others = [i for i in mine if not any(t in i.feasibility.host.match for t in i.feasibility.host.cap)]
        self.top_up(mine)
        if exclusive:
            self._seat(lots_of(exclusive, hosts=True), options & ~self._choosy())
            self.top_up(others)
            left = [i for i in exclusive if i.pods]
            if left and (options & self._choosy()).any():
                self._buy_all(lots_of([*others, *left], hosts=True), options, hosts=True)
                return
        picky = [i for i in others if i.feasibility.host.cap]
        if picky and len(others) > _FEW:
            anti_affinity: dict[object, list[Item]] = {}
            for item in picky:
                anti_affinity.setdefault((item.feasibility.host.key, item.feasibility.mask_key), []).append(item)
            for alike in anti_affinity.values():
                self._buy_all(lots_of(alike, hosts=False), options, hosts=False)
            self.top_up([i for i in others if not i.feasibility.host.cap])
            picky = []
            others = [i for i in others if not i.feasibility.host.cap]
        self._buy_all(lots_of(others, hosts=bool(picky)), options, hosts=bool(picky))

    def _choosy(self) -> Bools:
        """Which rows are of pools whose claims must keep several values of a label: these are bought by worth alone."""
        templates = np.fromiter((self.strict and bool(p.min_values) for p in self.launch_options.templates), np.bool_)
        found: Bools = templates[self.launch_options.template_of]
        return found

    # --- buying by worth ---

    def _buy_all(self, lots: list[Lot], options: Bools, *, hosts: bool) -> None:
        steady: tuple[OptionSet, int, float] | None = None
        while lots:
            again = self._again(steady) if steady is not None and not hosts else None
            if again is not None:
                option_set, at, counts = again
            else:
                found = self._search(lots, options, hosts=hosts)
                if found is None:
                    return
                option_set, at, counts, rate = found
                steady = (
                    (option_set, at, rate)
                    if len(lots) > _FEW and not self.limits.is_near_for(int(option_set.options[at]))
                    else None
                )
            self._take(option_set, at, counts)
            lots = [lot for lot in lots if lot.count]

    def _again(self, steady: tuple[OptionSet, int, float]) -> tuple[OptionSet, int, Ints] | None:
        """The row found last once more, if it fills as well as it did."""
        option_set, at, rate = steady
        counts = self._fill_each(option_set, [int(option_set.options[at])])[:, 0]
        if float(counts @ option_set.worth) / max(float(option_set.price[at]), _TINY) < rate * _STEADY:
            return None
        return option_set, at, counts

    def _fill_each(self, option_set: OptionSet, options: Sequence[int]) -> Ints:
        """How many pods of each lot one machine of each launch option takes: lots x options."""
        had = np.array([x.count for x in option_set.lots], np.int64)
        counts = np.zeros((len(had), len(options)), np.int64)
        fills: dict[tuple[int, ...], tuple[Ints, RunFill | None]] = {}
        for j, option in enumerate(options):
            barred = tuple(
                [m for m, k in option_set.feasibilities.items() if not _allowed(k, option, option_set.custom)]
            )
            if barred not in fills:
                where = np.flatnonzero(np.where(np.isin(option_set.masks, barred), 0, had))
                fills[barred] = where, RunFill(option_set.requests[where], had[where]) if len(where) else None
            where, fill = fills[barred]
            if fill is not None:
                counts[where, j] = fill.fill(self.launch_options.free[option])
        return counts

    def _search(self, lots: Sequence[Lot], options: Bools, *, hosts: bool) -> tuple[OptionSet, int, Ints, float] | None:
        best: tuple[float, OptionSet, int, Ints] | None = None
        for option_set in self.option_sets(lots, options):
            fill = self._fill(option_set, hosts=hosts)
            rate = fill.worth / np.maximum(option_set.price, _TINY)
            for at in np.argsort(-rate, kind="stable").tolist():
                if rate[at] <= 0 or (best is not None and rate[at] <= best[0] * (1 + _TINY)):
                    break
                if self._enough(option_set, at, fill.counts[:, at]):
                    best = (float(rate[at]), option_set, at, fill.counts[:, at])
                    break
        return None if best is None else (best[1], best[2], best[3], best[0])

    def _fill(self, option_set: OptionSet, *, hosts: bool) -> Fill:
        free = self.launch_options.free[option_set.options]
        if hosts or len(option_set.lots) <= _FEW:
            items = [as_item(x, x.count, hosts=hosts) for x in option_set.lots]
            return fill_options(free, option_set.options, items, option_set.custom)
        counts = self._fill_each(option_set, option_set.options.tolist())
        return Fill(counts, option_set.worth @ counts, free)

    def option_sets(self, lots: Sequence[Lot], options: Bools) -> list[OptionSet]:
        """What may be bought: for each set of lots that can share an offering and custom labels, the rows worth it."""
        found: list[OptionSet] = []
        affordable = options & self.limits.allowed_options()
        state = affordable.tobytes()
        feasibilities = list({x.feasibility.mask_key: x.feasibility for x in lots}.values())
        for offerings in _distinct_columns(np.stack([k.offerings for k in feasibilities])):
            here = [k for k in feasibilities if k.offerings[offerings[0]]]
            if not here:
                continue
            keys = frozenset(k.mask_key for k in here)
            key = (state, keys, offerings.tobytes())
            if key not in self._chosen:
                self._chosen[key] = self._choose(here, affordable, offerings)
            mine = [x for x in lots if x.feasibility.mask_key in keys]
            found += [OptionSet(mine, chosen, price, custom) for chosen, price, custom in self._chosen[key]]
        return found

    def _choose(
        self, feasibilities: Sequence[Feasibility], affordable: Bools, offerings: Ints
    ) -> list[tuple[Ints, Floats, int]]:
        """The rows worth buying for these kinds in these offerings, their prices, by what is asked of custom labels."""
        price = self.launch_options.price[:, offerings].min(1)
        where = np.flatnonzero(
            affordable & np.isfinite(price) & np.logical_or.reduce([k.options for k in feasibilities])
        )
        found: list[tuple[Ints, Floats, int]] = []
        for custom in sorted({c for k in feasibilities for c in np.unique(k.custom[where]).tolist()}):
            chosen = self._worth_it(feasibilities, where, price, custom)
            if len(chosen):
                found.append((chosen, price[chosen], custom))
        return found

    def _worth_it(self, feasibilities: Sequence[Feasibility], options: Ints, price: Floats, custom: int) -> Ints:
        """The rows that no other row beats: as allowed to the kinds, at least as large, no dearer."""
        launch_options = self.launch_options
        asked = np.stack([k.custom[options] for k in feasibilities])
        allowed = np.stack([k.options[options] for k in feasibilities]) & ((asked == 0) | (asked == custom))
        useful = allowed.any(0) & ((asked == custom) & allowed).any(0) if custom else allowed.any(0)
        options, allowed = options[useful], allowed[:, useful]
        groups: dict[tuple[int, bytes], list[int]] = {}
        for j, (option, pool) in enumerate(
            zip(options.tolist(), launch_options.template_of[options].tolist(), strict=True)
        ):
            special = launch_options.templates[pool].min_values or self.limits.is_near(pool)
            groups.setdefault((pool if special else -1, allowed[:, j].tobytes()), []).append(option)
        kept: list[int] = []
        for (pool, _), members in groups.items():
            if pool >= 0:
                kept.extend(members)
            else:
                group = np.array(members)
                kept.extend(group[front(launch_options.free[group], price[group])].tolist())
        return np.array(sorted(kept), np.int64)

    def _enough(self, option_set: OptionSet, at: int, counts: Ints) -> bool:
        """Whether the claim would keep as many different values as its pool asks for."""
        pool = self.launch_options.templates[self.launch_options.template_of[option_set.options[at]]]
        if not pool.min_values or not self.strict:
            return True
        lots = [(x, n) for x, n in zip(option_set.lots, counts.tolist(), strict=True) if n]
        used = sum((x.requests * n for x, n in lots), np.zeros(len(self.launch_options.resources), np.int64))
        offerings = np.logical_and.reduce([x.feasibility.offerings for x, _ in lots])
        options = fitting(
            self.launch_options, pool, [x.feasibility for x, _ in lots], used, offerings, option_set.custom
        )
        return satisfies_min_values(self.launch_options, pool, options, offerings)

    def _take(self, option_set: OptionSet, at: int, counts: Ints) -> None:
        taken = [(lot, n) for lot, n in zip(option_set.lots, counts.tolist(), strict=True) if n]
        option = int(option_set.options[at])
        often = min(lot.count // n for lot, n in taken)
        times = max(1, min(often, self.limits.max_count(option)))
        for _ in range(times):
            self.open(option, option_set.custom, [pair for lot, n in taken for pair in lot.take(n)])

    def open(self, option: int, custom: int, content: list[tuple[Item, list[str]]]) -> Bin:
        """Buys one machine with this content."""
        used = np.zeros(len(self.launch_options.resources), np.int64)
        offerings = np.ones(len(self.launch_options.offerings), np.bool_)
        for item, pods in content:
            used += item.requests * len(pods)
            offerings &= item.feasibility.offerings
        made = Bin(option, offerings, custom, used, content)
        self.bins.append(made)
        self.limits.add(option)
        return made

    # --- pods that want no like beside them ---

    def _seat(self, lots: Sequence[Lot], options: Bools) -> None:
        """Gives every pod a machine of its own, or one shared with pods of other rules: its floor costs once."""
        from shared.scheduling.solver.host_anti_affinity import Seating  # noqa: PLC0415 (it needs the packer)

        Seating(self, options).seat(lots)

    # --- room that is left ---

    def top_up(self, items: Sequence[Item]) -> None:
        """Puts pods into what room is left in the bins there are, where that costs nothing."""
        bins = [
            b
            for b in self.bins
            if not (self.strict and self.launch_options.templates[self.launch_options.template_of[b.option]].min_values)
        ]
        if bins and items:
            spare = Spare(self.launch_options, bins)
            for lot in lots_of(items, hosts=True):
                spare.put(lot)
            spare.close()


def as_item(lot: Lot, count: int, *, hosts: bool) -> Item:
    """So many pods of the lot as one item, for filling; without rules about hosts where nobody holds any."""
    feasibility = lot.feasibility if hosts or not lot.feasibility.host.match else lot.feasibility.without_host_rules
    return Item(feasibility, lot.requests, _Counted(count), lot.worth)


class _Counted(list[str]):
    """Stands for so many pods that needn't be named."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self._n = n

    def __len__(self) -> int:
        return self._n


def _allowed(feasibility: Feasibility, option: int, custom: int) -> bool:
    return bool(feasibility.options[option]) and int(feasibility.custom[option]) in {0, custom}


def _distinct_columns(matrix: Bools) -> list[Ints]:
    """The columns of a matrix, equal ones together."""
    groups: dict[bytes, list[int]] = {}
    for j in range(matrix.shape[1]):
        groups.setdefault(matrix[:, j].tobytes(), []).append(j)
    return [np.array(g) for g in groups.values()]


def fitting(
    launch_options: LaunchOptions,
    pool: NodeClaimTemplate,
    feasibilities: Sequence[Feasibility],
    used: Ints,
    offerings: Bools,
    custom: int,
) -> Ints:
    """The pool's rows that hold this much, are allowed to these kinds, and can be had in one of the offerings."""
    distinct = {k.mask_key: k for k in feasibilities}
    key = (pool.node_pool, frozenset(distinct), offerings.tobytes(), custom)
    options = launch_options.fitting_options.get(key)
    if options is None:
        ok = np.isfinite(launch_options.price[pool.options][:, offerings]).any(1)
        for feasibility in distinct.values():
            ask = feasibility.custom[pool.options]
            ok &= feasibility.options[pool.options] & ((ask == 0) | (ask == custom))
        options = launch_options.fitting_options[key] = np.flatnonzero(ok) + pool.options.start
    found: Ints = options[holds(launch_options.free[options], used)]
    return found
