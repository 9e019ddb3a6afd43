"""How much of a set of pods one machine takes, asked of many rows at once.

Two ways lead to the same first-fit: item by item over all rows, which suits few sizes; and row by row in runs over all
items, which suits pods that all differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.topology.host_counts import NO_CAP, HostCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


@dataclass(eq=False)
class Item:
    """Pods of one kind and size. ``worth`` is the least that one of them costs, USD per hour.

    ``owner`` and ``where`` (domain values by key) are the planner's, to find its way back from what is left over.
    """

    feasibility: Feasibility
    requests: Ints
    pods: list[str]
    worth: float = 0.0
    owner: object = None
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many pods."""
        return len(self.pods)


@dataclass(frozen=True)
class Fill:
    """How many of each item every row would take, and what that is worth."""

    counts: Ints
    worth: Floats
    free: Ints


def most(requests: Ints, free: Ints) -> Ints:
    """How many pods of this size fit, by row."""
    fits = np.full(len(free), NO_CAP, np.int64)
    for r in np.flatnonzero(requests).tolist():
        np.minimum(fits, free[:, r] // requests[r], out=fits)
    return np.maximum(fits, 0, out=fits)


def value(launch_options: LaunchOptions, items: Sequence[Item]) -> None:
    """Sets what each item's pods are worth: the least share of a machine's price that one takes; inf if none fits."""
    by_kind: dict[tuple[bytes, bytes], list[Item]] = {}
    for item in items:
        by_kind.setdefault((item.feasibility.options.tobytes(), item.feasibility.offerings.tobytes()), []).append(item)
    for members in by_kind.values():
        feasibility = members[0].feasibility
        options = np.flatnonzero(feasibility.options)
        if not len(options):
            for item in members:
                item.worth = float("inf")
            continue
        price = launch_options.price[options][:, feasibility.offerings].min(1)
        options, price = _front(launch_options.free[options], price, options)
        free = np.maximum(launch_options.free[options], 1).astype(np.float64)
        requests = np.stack([i.requests for i in members]).astype(np.float64)
        share = np.zeros((len(members), len(options)))
        for r in range(requests.shape[1]):
            if requests[:, r].any():
                np.maximum(share, requests[:, r, None] / free[None, :, r], out=share)
        cost = np.where(share > 1, np.inf, share * price)
        for item, worth in zip(members, cost.min(1).tolist(), strict=True):
            item.worth = worth


def _front(free: Ints, price: Floats, options: Ints) -> tuple[Ints, Floats]:
    kept = front(free, price)
    return options[kept], price[kept]


_BLOCK = 256
"""So many rows are compared with one another at once."""


def front(free: Ints, price: Floats) -> Ints:
    """The places of the rows that no other row beats: at least as large, no dearer. In order of price."""
    order = np.lexsort((np.arange(len(price)), -free.sum(1), price))
    columns = np.ascontiguousarray(free[order].T)
    columns = columns[(columns != columns[:, :1]).any(1)] if len(order) else columns
    kept = np.zeros(0, np.int64)
    for start in range(0, len(order), _BLOCK):
        mine = np.arange(start, min(start + _BLOCK, len(order)))
        mine = mine[~_covered(columns[:, kept], columns[:, mine]).any(0)]
        inside = _covered(columns[:, mine], columns[:, mine])
        kept = np.concatenate([kept, mine[~np.triu(inside, 1).any(0)]])
    return order[kept]


def _covered(by: Ints, what: Ints) -> Bools:
    """Which columns of ``by`` are at least as large as which of ``what``, in every resource: by x what."""
    found = np.ones((by.shape[1], what.shape[1]), np.bool_)
    for larger, smaller in zip(by, what, strict=True):
        found &= larger[:, None] >= smaller[None, :]
    return found


def holds(free: Ints, used: Ints) -> Bools:
    """Which rows of ``free`` (rows x resources) have room for this much."""
    found = np.ones(len(free), np.bool_)
    for r, amount in enumerate(used.tolist()):
        found &= free[:, r] >= amount
    return found


def holds_each(free: Ints, used: Ints) -> Bools:
    """Which rows of ``free`` (rows x resources) have room for which of ``used`` (cases x resources): cases x rows."""
    return _covered(np.ascontiguousarray(free.T), np.ascontiguousarray(used.T)).T


def fill_options(free: Ints, options: Ints, items: Sequence[Item], custom: int) -> Fill:
    """Fills every row with the items in their order; hosts' rules hold within each row."""
    free = free.copy()
    counts = np.zeros((len(items), len(options)), np.int64)
    worth = np.zeros(len(options))
    hosts = HostCounts(len(options))
    allowed: dict[int, Bools] = {}
    for i, item in enumerate(items):
        feasibility = item.feasibility
        ok = allowed.get(id(feasibility))
        if ok is None:
            ask = feasibility.custom[options]
            ok = allowed[id(feasibility)] = feasibility.options[options] & ((ask == 0) | (ask == custom))
        fits = np.minimum(most(item.requests, free), item.count)
        fits *= ok
        if feasibility.host.match or feasibility.host.cap:
            hosts.restrict(fits, feasibility.host)
        taken = np.flatnonzero(fits)
        if not len(taken):
            continue
        counts[i] = fits
        free -= fits[:, None] * item.requests
        worth += fits * item.worth
        if feasibility.host.match or feasibility.host.cap:
            hosts.add(taken, fits[taken], feasibility.host)
    return Fill(counts, worth, free)


class RunFill:
    """First-fit of many items, in their order, into one machine after another; for items without rules about hosts.

    Sums over the items are taken once, so that each machine costs little.

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
        """How many of each item a machine with this much of each resource takes."""
        counts, columns, totals = self._counts, self._columns, self._totals
        taken = np.zeros(len(counts), np.int64)
        left = free[self._needed].tolist()
        start, size = 0, len(counts)
        while start < size:
            # Everything from start on, as far as it fits whole.
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
            stop = min(start + _AHEAD, size)
            fits = self._columns[0][start:stop] <= left[0]
            for c, v in zip(self._columns[1:], left[1:], strict=True):
                fits &= c[start:stop] <= v
            at = fits.argmax().item()
            if fits[at]:
                return start + at
            start = stop
        return size


_AHEAD = 256
"""So many items are compared with what is left at once."""
