"""How many pods fit on a node, computed for many launch options at once.

Pods to pack are counted instead of looped over: items by group and size, and lots of items that pack alike.

Three functions do the same first fit: item by item over all launch options, for few sizes of pods; launch option by
launch option, for few of both; and launch option by launch option in runs over all items, for pods that all differ.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.base.struct import MutableStruct, Struct
from shared.scheduling.state.instance_type_arrays import at_least
from shared.scheduling.topology.domain_counts import NO_CAP, HostCounts, OneHost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.topology.feasibility import Feasibility, FeasibilityChecker

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_FEW_NODES = 16
"""Up to this many nodes are filled one by one; more are filled at once, which takes as long for a hundred of them."""
_ITEMS_COMPARED = 256
"""How many items are compared with what a node has left at once."""


class Item(MutableStruct):
    """Pods of one feasibility and size. ``worth`` is the least that one of them costs, USD per hour.

    ``owner`` (a pending group) and ``where`` (domains by topology key) lead back from pods that stay unscheduled.
    """

    feasibility: Feasibility
    requests: Ints
    pods: list[str]
    worth: float = 0.0
    owner: object = None
    where: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many pods."""
        return len(self.pods)


class Lot(MutableStruct):
    """Items of the same size and feasibility, counted as one."""

    feasibility: Feasibility
    requests: Ints
    worth: float
    items: list[Item]
    count: int

    def take(self, n: int) -> list[tuple[Item, list[str]]]:
        """Takes n pods out of its items, in order."""
        taken: list[tuple[Item, list[str]]] = []
        n = min(n, self.count)
        self.count -= n
        for item in self.items:
            if not n:
                break
            pods = item.pods[:n]
            if pods:
                del item.pods[: len(pods)]
                taken.append((item, pods))
                n -= len(pods)
        return taken


def lots_of(items: Iterable[Item], *, hosts: bool) -> list[Lot]:
    """The items as lots, greatest worth first; ``hosts``: items with different host rules are different lots."""
    lots: dict[tuple[object, ...], Lot] = {}
    for item in sorted((i for i in items if i.pods and isfinite(i.worth)), key=_order):
        feasibility = item.feasibility
        host_rules = feasibility.host.key if hosts else ()
        key = (feasibility.mask_key, host_rules, item.requests.tobytes())
        lot = lots.get(key)
        if lot is None:
            lots[key] = Lot(feasibility, item.requests, item.worth, [item], item.count)
        else:
            lot.items.append(item)
            lot.count += item.count
    return list(lots.values())


def _order(item: Item) -> tuple[float, bytes, str]:
    return (-item.worth, item.requests.tobytes(), item.pods[0])


def as_item(lot: Lot, count: int, *, hosts: bool) -> Item:
    """That many pods of the lot as one item, for filling; without host rules where no pod has any."""
    feasibility = lot.feasibility if hosts or not lot.feasibility.host.match else lot.feasibility.without_host_rules
    return Item(feasibility, lot.requests, _UnnamedPods(count), lot.worth)


class _UnnamedPods(list[str]):
    """A number of pods whose names don't matter."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count


def pod_count(requests: Ints, free: Ints) -> Ints:
    """How many pods of this size fit into each row of ``free`` (rows x resources)."""
    fits = np.full(len(free), NO_CAP, np.int64)
    for r in np.flatnonzero(requests).tolist():
        np.minimum(fits, free[:, r] // requests[r], out=fits)
    return np.maximum(fits, 0, out=fits)


def holds(free: Ints, used: Ints) -> Bools:
    """Which rows of ``free`` (rows x resources) hold this much."""
    held = np.ones(len(free), np.bool_)
    for r, amount in enumerate(used.tolist()):
        held &= free[:, r] >= amount
    return held


def holds_each(free: Ints, used: Ints) -> Bools:
    """Which rows of ``free`` (rows x resources) hold which of ``used`` (cases x resources): cases x rows."""
    return at_least(np.ascontiguousarray(free.T), np.ascontiguousarray(used.T)).T


def set_worth(checker: FeasibilityChecker, items: Sequence[Item]) -> None:
    """Sets each item's worth: the least share of a node's price that one of its pods takes; inf if no node holds it."""
    by_mask: dict[int, list[Item]] = {}
    for item in items:
        by_mask.setdefault(item.feasibility.mask_key, []).append(item)
    for members in by_mask.values():
        costs = checker.costs(members[0].feasibility, [item.requests for item in members])
        for item, cost in zip(members, costs, strict=True):
            item.worth = cost


class Fill(Struct, eq=False):
    """How many pods of each item a node of every launch option holds, and what they are worth.

    ``counts``: items x nodes that differ; ``node_of``: by launch option its column in ``counts``. Where options hold
    the same, as they are large enough for all pods that may share a host, theirs is the last column.
    """

    counts: Ints
    node_of: Ints
    worth: Floats


def fill_options(free: Ints, options: Ints, items: Sequence[Item], custom: int) -> Fill:
    """Fills a node of each launch option with the items in their order; host rules hold on each node.

    ``free``: options x resources. ``custom``: the requirements of custom labels that all pods on the node share.
    """
    allowed_options = _allowed_options(options, items, custom)
    most = _fill_one(None, [(item, True) for item in items])
    needed = sum((item.requests * n for item, n in zip(items, most, strict=True)), np.zeros(free.shape[1], np.int64))
    holds_most = np.logical_and.reduce([holds(free, needed), *(a for a in allowed_options.values() if a is not None)])
    smaller = np.flatnonzero(~holds_most)
    if len(smaller) > _FEW_NODES:
        return _fill_all(free, items, allowed_options)
    nodes = [
        _fill_one(left, [(i, (a := allowed_options[id(i.feasibility)]) is None or bool(a[option])) for i in items])
        for option, left in zip(smaller.tolist(), free[smaller].tolist(), strict=True)
    ]
    nodes.append(most)
    node_of = np.full(len(options), len(smaller))
    node_of[smaller] = np.arange(len(smaller))
    worth = np.array([_total_worth(items, counts) for counts in nodes])
    return Fill(np.array(nodes, np.int64).T, node_of, worth[node_of])


def _fill_one(left: list[int] | None, items: Sequence[tuple[Item, bool]]) -> list[int]:
    """How many pods of each item a node holds that has this ``left`` (by resource; None: any amount).

    Items come with whether they may use the node.
    """
    host = OneHost()
    counts: list[int] = []
    for item, is_allowed in items:
        n = item.count if is_allowed else 0
        requests = item.requests.tolist() if n and left is not None else []
        if left is not None and requests:
            n = min([n, *[free // amount for free, amount in zip(left, requests, strict=True) if amount]])
        if n and _has_host_rules(item):
            n = min(n, host.room(item.feasibility.host))
            if n:
                host.add(item.feasibility.host, n)
        if left is not None and n:
            left = [free - n * amount for free, amount in zip(left, requests, strict=True)]
        counts.append(n)
    return counts


def _total_worth(items: Sequence[Item], counts: Sequence[int]) -> float:
    worth = 0.0
    for item, n in zip(items, counts, strict=True):
        worth += n * item.worth
    return worth


def _has_host_rules(item: Item) -> bool:
    return bool(item.feasibility.host.match or item.feasibility.host.own)


def _allowed_options(options: Ints, items: Sequence[Item], custom: int) -> dict[int, Bools | None]:
    """Which launch options the items may use, by the id of their feasibility; None for all."""
    allowed_options: dict[int, Bools | None] = {}
    for feasibility in {id(item.feasibility): item.feasibility for item in items}.values():
        own = feasibility.custom[options]
        allowed = feasibility.options[options] & ((own == 0) | (own == custom))
        allowed_options[id(feasibility)] = None if allowed.all() else allowed
    return allowed_options


def _fill_all(free: Ints, items: Sequence[Item], allowed_options: Mapping[int, Bools | None]) -> Fill:
    """Fills all launch options at once, item by item."""
    left = np.array(free.T, order="C")  # resources x options
    counts = np.zeros((len(items), len(free)), np.int64)
    worth = np.zeros(len(free))
    hosts = HostCounts(len(free))
    for i, item in enumerate(items):
        fits = np.full(len(free), item.count, np.int64)
        requested = [(r, amount) for r, amount in enumerate(item.requests.tolist()) if amount]
        for r, amount in requested:
            np.minimum(fits, left[r] // amount, out=fits)
        allowed = allowed_options[id(item.feasibility)]
        if allowed is not None:
            fits *= allowed
        has_host_rules = _has_host_rules(item)
        if has_host_rules:
            hosts.restrict(fits, item.feasibility.host)
        if not fits.any():
            continue
        counts[i] = fits
        for r, amount in requested:
            left[r] -= fits * amount
        worth += fits * item.worth
        if has_host_rules:
            filled = np.flatnonzero(fits)
            hosts.add(filled, fits[filled], item.feasibility.host)
    return Fill(counts, np.arange(len(free)), worth)


class RunFill:
    """First fit of many items, in their order, into nodes of one launch option after another, without host rules.

    Sums over the items are computed once, so each launch option costs little.

    Args:
        requests: items x resources.
        counts: how many pods each item has.
    """

    def __init__(self, requests: Ints, counts: Ints) -> None:
        self._counts = counts
        self._needed = np.flatnonzero(requests.any(0))
        self._columns = [np.ascontiguousarray(requests[:, r]) for r in self._needed.tolist()]
        self._totals = [np.concatenate([[0], np.cumsum(c * counts)]) for c in self._columns]

    def fill(self, free: Ints) -> Ints:
        """How many pods of each item a node with this much of each resource holds."""
        counts, columns, totals = self._counts, self._columns, self._totals
        taken = np.zeros(len(counts), np.int64)
        left = free[self._needed].tolist()
        start, size = 0, len(counts)
        while start < size:
            # all items from start on that fit whole
            base = [t[start].item() for t in totals]
            stop = min(
                [t.searchsorted(b + v, side="right").item() - 1 for t, b, v in zip(totals, base, left, strict=True)]
            )
            if stop > start:
                taken[start:stop] = counts[start:stop]
                left = [v - (t[stop].item() - b) for t, b, v in zip(totals, base, left, strict=True)]
            if stop >= size:
                break
            sizes = [c[stop].item() for c in columns]
            n = min(counts[stop].item(), *[v // c for c, v in zip(sizes, left, strict=True) if c])
            if n:
                taken[stop] = n
                left = [v - n * c for c, v in zip(sizes, left, strict=True)]
            start = self._next(stop + 1, left)
        return taken

    def _next(self, start: int, left: Sequence[int]) -> int:
        """The first item from ``start`` on of which a pod fits into what is left; the number of items if none does."""
        size = len(self._counts)
        while start < size:
            stop = min(start + _ITEMS_COMPARED, size)
            fits = self._columns[0][start:stop] <= left[0]
            for c, v in zip(self._columns[1:], left[1:], strict=True):
                fits &= c[start:stop] <= v
            at = fits.argmax().item()
            if fits[at]:
                return start + at
            start = stop
        return size
