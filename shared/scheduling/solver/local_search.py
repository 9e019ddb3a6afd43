"""Local search: repacks the pods of a few bins at a time wherever that is cheaper.

Packing one node after another is short-sighted at the end, where the last pods get what is left. So a few bins with the
most waste are emptied together and repacked. Only what is strictly cheaper is kept, so a plan never gets worse.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

import numpy as np

from shared.base.struct import with_fields
from shared.scheduling.solver.fit import Item, lots_of
from shared.scheduling.solver.pending_groups import PendingGroup
from shared.scheduling.solver.repacking import MIN_GAIN, PriceBound, Repacker
from shared.scheduling.solver.residual import Residual
from shared.scheduling.state.launch_options import NodePoolWeights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bin, Bins
    from shared.scheduling.solver.fit import Lot
    from shared.scheduling.solver.packing import OptionSets
    from shared.scheduling.solver.repacking import Repacking
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.topology.feasibility import Feasibility

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_FEW_BINS = 12
"""Up to this many bins, they are also emptied one by one into the others, and repacked all together."""
_CANDIDATES = 48
"""How many bins with the most waste are repacked, each with some of the next."""
_PARTNERS = 8
_TRIPLES = [(j, k) for j in range(4) for k in range(j + 1, 5)]
_QUADRUPLE_PARTNERS = 3


class LocalSearch:
    """Repacks the bins of a plan, until no set of bins becomes cheaper or its steps are used up."""

    def __init__(self, bins: Bins, option_sets: OptionSets, steps: int) -> None:
        self._bins = bins
        self._launch_options = bins.launch_options
        self._repacker = Repacker(bins, option_sets, steps)
        self._waste: dict[int, float] = {}
        self._bounds: dict[int, tuple[Floats, float, float]] = {}

    def run(self) -> None:
        """Repacks bins in place; not those with a reserved size or with host affinity."""
        weights = NodePoolWeights(self._launch_options)
        free = [b for b in self._bins.opened if b.reserved is None and not _has_host_affinity(b)]
        for options in weights.options_by_weight():
            self._options = options
            self._price_bound = PriceBound(self._launch_options, options)
            self._improve([b for b in free if options[b.option]])

    def _improve(self, bins: list[Bin]) -> None:
        """Repacks bins whose NodePools have the same weight."""
        tried: set[tuple[object, ...]] = set()
        self._assess(bins)
        while self._repacker.steps > 0 and bins:
            ranked = nsmallest(_CANDIDATES, bins, key=lambda b: (-self._waste[id(b)], b.content[0][1][0]))
            fewer = self._empty_one(bins, ranked) if len(bins) <= _FEW_BINS else None
            if fewer is not None:
                bins = fewer
                self._assess(bins)
                continue
            improved = self._repack_one_set(bins, ranked, tried)
            if improved is None:
                return
            bins = improved

    def _repack_one_set(
        self, bins: Sequence[Bin], ranked: Sequence[Bin], tried: set[tuple[object, ...]]
    ) -> list[Bin] | None:
        """The bins after the first set that becomes cheaper was repacked; None if there is none."""
        for chosen in _sets(ranked, len(bins)):
            key = tuple(sorted([_equivalence(b) for b in chosen]))
            if key in tried:
                continue
            tried.add(key)
            if not self._may_gain(chosen):
                continue
            repacked = self._repack(chosen)
            if self._repacker.steps <= 0:
                return None
            if repacked is not None:
                gone = {id(b) for b in chosen}
                self._assess(repacked)
                return [b for b in bins if id(b) not in gone] + repacked
        return None

    # --- what bins waste, and may gain ---

    def _assess(self, bins: Sequence[Bin]) -> None:
        """Computes what each bin costs beyond what its pods are worth, and the lower bounds of its pods' price."""
        for bin_, price in zip(bins, self._bins.prices(bins).tolist(), strict=True):
            self._waste[id(bin_)] = price - sum([item.worth * len(pods) for item, pods in bin_.content])
            self._bounds.pop(id(bin_), None)

    def _may_gain(self, chosen: Sequence[Bin]) -> bool:
        """Whether the lower bound of these bins' pods is below the bins' price."""
        bounds = [self._bounds.get(id(b)) or self._bound(b) for b in chosen]
        shares = np.add.reduce([b[0] for b in bounds])
        return max(float(shares.max()), *(b[1] for b in bounds)) < sum(b[2] for b in bounds) - MIN_GAIN

    def _bound(self, bin_: Bin) -> tuple[Floats, float, float]:
        """What the pods pay at least by mix of resources, the least price of a node for one, and the bin's price."""
        shares: list[Floats] = []
        node_price = 0.0
        for item, pods in bin_.content:
            bounds = [self._price_bound.of(f, item.requests) for f in (_alternatives(item) or (item.feasibility,))]
            shares.append(np.minimum.reduce([b[0] for b in bounds]) * len(pods))
            node_price = max(node_price, min(b[1] for b in bounds))
        bound = (np.add.reduce(shares), node_price, bin_.price(self._launch_options))
        self._bounds[id(bin_)] = bound
        return bound

    # --- one bin emptied into the others ---

    def _empty_one(self, bins: Sequence[Bin], ranked: Sequence[Bin]) -> list[Bin] | None:
        """The bins after one, the first that saves money, was emptied into the others; None if there is none."""
        if len(bins) > 1:
            for bin_ in ranked:
                remaining = [b for b in bins if b is not bin_]
                rest = self._empty(bin_, remaining)
                if rest is not None:
                    return remaining + rest
        return None

    def _empty(self, bin_: Bin, remaining: Sequence[Bin]) -> list[Bin] | None:
        """Moves a bin's pods to the others' residual capacity, the rest to new bins; None if that saves nothing."""
        receivers = [b for b in remaining if not self._bins.needs_min_values(b.option)]
        if self._repacker.steps <= 0 or not receivers:
            return None
        lots = lots_of([with_fields(item, pods=list(pods)) for item, pods in bin_.content], hosts=True)
        self._repacker.steps -= len(lots) + 4
        before = [(b, b.content, b.used, b.offerings) for b in receivers]
        for receiver in receivers:
            receiver.content = list(receiver.content)
        if _fill_residual(self._launch_options, receivers, lots):
            rest = self._replace(bin_, [lot for lot in lots if lot.count])
            if rest is not None:
                return rest
        for receiver, content, used, offerings in before:
            receiver.content, receiver.used, receiver.offerings = content, used, offerings
        return None

    def _replace(self, bin_: Bin, lots: Sequence[Lot]) -> list[Bin] | None:
        """New bins for these lots instead of a bin, if they cost less; None if they don't."""
        self._bins.limits.remove(bin_.option)
        rest = self._open_rest(lots, bin_.price(self._launch_options))
        if rest is None:
            self._bins.limits.add(bin_.option)
        else:
            self._bins.forget([bin_])
        return rest

    def _open_rest(self, lots: Sequence[Lot], below: float) -> list[Bin] | None:
        """New bins for these lots that cost less than ``below``; None if there are none."""
        if not lots:
            return []
        repacking = self._repacker.cheapest(
            lots, self._options, self._price_bound, below=below - MIN_GAIN, three_nodes=False
        )
        return None if repacking is None else self._open(repacking, lots)

    # --- some bins repacked ---

    def _repack(self, chosen: Sequence[Bin]) -> list[Bin] | None:
        """New bins for the pods of these that cost less; None if there are none."""
        original = [item for b in chosen for item, _ in b.content]
        items = [with_fields(item, pods=list(pods)) for b in chosen for item, pods in b.content]
        for bin_ in chosen:
            self._bins.limits.remove(bin_.option)
        best: tuple[Repacking, list[Lot], list[Item]] | None = None
        below = sum(b.price(self._launch_options) for b in chosen) - MIN_GAIN
        for variant in _variants(items):
            lots = lots_of(variant, hosts=any(i.feasibility.host.own for i in variant))
            repacking = self._repacker.cheapest(
                lots, self._options, self._price_bound, below=below, three_nodes=len(chosen) > 1
            )
            if repacking is not None:
                best, below = (repacking, lots, variant), repacking.price - MIN_GAIN
            if self._repacker.steps <= 0:
                break
        if best is None:
            for bin_ in chosen:
                self._bins.limits.add(bin_.option)
            return None
        repacking, lots, variant = best
        self._bins.forget(chosen)
        originals = {
            id(new): old if new.feasibility is old.feasibility else new
            for new, old in zip(variant, original, strict=True)
        }
        return self._open(repacking, lots, originals)

    def _open(
        self, repacking: Repacking, lots: Sequence[Lot], originals: Mapping[int, Item] | None = None
    ) -> list[Bin]:
        """Opens a bin for each node. ``originals``: the items that stand for those of the lots (by id) from now on."""
        opened = []
        for node in repacking.nodes:
            content = [part for lot, n in zip(lots, node.counts.tolist(), strict=True) if n for part in lot.take(n)]
            if originals is not None:
                content = [(originals[id(item)], pods) for item, pods in content]
            opened.append(self._bins.open(node.option, node.custom, content))
        return opened


def _fill_residual(launch_options: LaunchOptions, bins: Sequence[Bin], lots: Sequence[Lot]) -> bool:
    """Packs pods of the lots into the bins' residual capacity; whether any were packed."""
    counts = [lot.count for lot in lots]
    residual = Residual(launch_options, bins)
    for lot in lots:
        residual.fill(lot)
    residual.close()
    return [lot.count for lot in lots] != counts


def _sets(ranked: Sequence[Bin], count: int) -> Iterator[list[Bin]]:
    """The sets of bins to repack: each alone, then with others in the same offerings; at last all, if they are few."""
    for i, first in enumerate(ranked):
        partners = [b for b in ranked[i + 1 :] if (b.offerings & first.offerings).any()][:_PARTNERS]
        yield [first]
        for partner in partners:
            yield [first, partner]
        for j, k in _TRIPLES:
            if k < len(partners):
                yield [first, partners[j], partners[k]]
        if len(partners) >= _QUADRUPLE_PARTNERS:
            yield [first, *partners[:_QUADRUPLE_PARTNERS]]
    if 1 < count <= _FEW_BINS:
        yield list(ranked)


def _variants(items: list[Item]) -> Iterator[list[Item]]:
    """The items as they are; then with another node affinity alternative for all items with the same alternatives.

    Which alternative is cheapest shows only together with other pods, after one was chosen by the price of a single
    pod.
    """
    yield items
    by_alternatives: dict[tuple[int, ...], dict[int, tuple[Feasibility, ...]]] = {}
    for item in items:
        alternatives = _alternatives(item)
        if alternatives:
            key = (item.feasibility.mask_key, *(f.mask_key for f in alternatives))
            by_alternatives.setdefault(key, {})[id(item)] = alternatives
    for (current, *masks), members in by_alternatives.items():
        for n, mask in enumerate(masks):
            if mask != current:
                yield [
                    with_fields(item, feasibility=members[id(item)][n], pods=list(item.pods))
                    if id(item) in members
                    else item
                    for item in items
                ]


def _alternatives(item: Item) -> tuple[Feasibility, ...]:
    """The feasibilities among which the item's pods may choose; none if there is only one."""
    if not isinstance(item.owner, PendingGroup):
        return ()
    return tuple(item.owner.launchable_alternatives.get(tuple(item.where.items()), ()))


def _equivalence(bin_: Bin) -> tuple[object, ...]:
    """A key that is equal for bins that are repacked with the same result."""
    content: dict[tuple[object, ...], int] = {}
    for item, pods in bin_.content:
        masks = (item.feasibility.mask_key, *(f.mask_key for f in _alternatives(item)))
        key = (masks, item.feasibility.host.key, item.requests.tobytes())
        content[key] = content.get(key, 0) + len(pods)
    return (bin_.option, bin_.custom, tuple(sorted(content.items())))


def _has_host_affinity(bin_: Bin) -> bool:
    """Whether a pod must share this host with others; such bins are not repacked."""
    return any(isinstance(item.owner, PendingGroup) and item.owner.host_affinity for item, _ in bin_.content)
