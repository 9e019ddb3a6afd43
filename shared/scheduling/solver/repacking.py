"""The cheapest few nodes for some pods, for local search.

Every way to hold the pods on one or two nodes is priced at once; with a third node, only after first nodes whose pods
are worth most for their price. A lower bound of the price skips what can't be cheap enough.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from shared.base.struct import Struct
from shared.scheduling.solver.fit import as_item, fill_options, holds, holds_each
from shared.scheduling.state.instance_type_arrays import undominated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bins
    from shared.scheduling.solver.fit import Lot
    from shared.scheduling.solver.packing import OptionSet, OptionSets
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

MIN_GAIN = 1e-9
"""USD per hour by which nodes must become cheaper."""
_FIRST_NODES = 6
"""How many first nodes are tried before a pair."""
_STEPS_OF_FILL = 4
"""Steps that a fill takes in addition to those of its lots."""
_TINY = 1e-9
_SHARES_OF_CPU = (0.2, 0.35, 0.5, 0.65, 0.8)
"""The mixes of cpu and memory in a price bound, by cpu's share, in addition to each resource alone."""


class PriceBound:
    """A lower bound of what pods cost on some launch options, whatever nodes hold them.

    A node's price is shared among its pods by what they request of a mix of resources, as in the dual of the linear
    relaxation. No pod can pay less than its cheapest launch option costs per unit of the mix, so these shares add up
    to no more than the price of the nodes. The greatest of a few mixes is the bound.
    """

    def __init__(self, launch_options: LaunchOptions, options: Bools) -> None:
        self.launch_options = launch_options
        self._options = options
        self._mixes = _mixes(launch_options)
        self._size = launch_options.free @ self._mixes.T
        self._by_mask: dict[int, tuple[Floats, Ints, Floats]] = {}
        self._bounds: dict[tuple[int, bytes], tuple[Floats, float]] = {}

    def of(self, feasibility: Feasibility, requests: Ints) -> tuple[Floats, float]:
        """What one pod pays at least, by mix of resources; and the price of the cheapest node that holds it."""
        key = (feasibility.mask_key, requests.tobytes())
        bound = self._bounds.get(key)
        if bound is None:
            per_unit, free, price = self._cheapest(feasibility)
            holding = (free >= requests).all(1)
            least = float(price[holding.argmax()]) if holding.any() else np.inf
            bound = self._bounds[key] = ((self._mixes @ requests) * per_unit, least)
        return bound

    def _cheapest(self, feasibility: Feasibility) -> tuple[Floats, Ints, Floats]:
        """The least price per unit of each mix, and the options with their prices, cheapest first."""
        cheapest = self._by_mask.get(feasibility.mask_key)
        if cheapest is None:
            options = np.flatnonzero(feasibility.options & self._options)
            price = self.launch_options.price[options][:, feasibility.offerings].min(1, initial=np.inf)
            options, price = options[np.isfinite(price)], price[np.isfinite(price)]
            order = np.argsort(price, kind="stable")
            size = np.maximum(self._size[options], 1e-12)
            per_unit = (price[:, None] / size).min(0, initial=np.inf) if len(options) else np.zeros(len(self._mixes))
            cheapest = (per_unit, self.launch_options.free[options[order]], price[order])
            self._by_mask[feasibility.mask_key] = cheapest
        return cheapest


def _mixes(launch_options: LaunchOptions) -> Floats:
    """The mixes of resources, one a row, scaled to the largest amounts."""
    largest = np.maximum(launch_options.free.max(0, initial=1), 1).astype(np.float64)
    alone: Floats = np.eye(len(largest)) / largest
    names = launch_options.resources
    if "cpu" not in names or "memory" not in names:
        return alone
    cpu, memory = alone[names.index("cpu")], alone[names.index("memory")]
    return np.vstack([alone, *[share * cpu + (1 - share) * memory for share in _SHARES_OF_CPU]])


class Node(Struct, eq=False):
    """One node: its launch option, custom labels, and how many pods of each lot."""

    option: int
    custom: int
    counts: Ints


class Repacking(Struct, eq=False):
    """Nodes that hold all the pods, and their price."""

    price: float
    nodes: tuple[Node, ...]


class _First(Struct, eq=False):
    """A first node with the worth of its pods for its price."""

    rate: float
    price: float
    node: Node


class _FilledSet(Struct, eq=False):
    """The options of a set with their prices, each filled with pods.

    ``held`` are lots x nodes that differ, ``node_of`` the column of each option in it; see :class:`Fill`.
    """

    options: Ints
    price: Floats
    custom: int
    held: Ints
    node_of: Ints
    worth: Floats

    def first_nodes(self) -> list[_First]:
        """The nodes whose pods are worth most for their price."""
        rate = self.worth / np.maximum(self.price, _TINY)
        return [
            _First(
                float(rate[at]),
                float(self.price[at]),
                Node(int(self.options[at]), self.custom, self.held[:, self.node_of[at]]),
            )
            for at in np.argsort(-rate, kind="stable")[:_FIRST_NODES].tolist()
        ]

    def first_of_pairs(self, below: float, *, keeps_all: bool) -> Ints:
        """The options below a price; of those that hold the same, only the cheapest, unless all are kept."""
        cheap = np.flatnonzero(self.price < below)
        if keeps_all or not len(cheap):
            return cheap
        hold_most = self.node_of[cheap] == self.held.shape[1] - 1
        alike = cheap[hold_most]
        cheapest = alike[:1] if not len(alike) else alike[[self.price[alike].argmin()]]
        return np.sort(np.concatenate([cheap[~hold_most], cheapest]))


class Repacker:
    """Finds repackings on some launch options, until its steps are used up.

    A step fills one lot into all launch options of a set; a search of 1,500 steps takes some tens of milliseconds.
    """

    def __init__(self, bins: Bins, option_sets: OptionSets, steps: int) -> None:
        self.steps = steps
        self._bins = bins
        self._launch_options = bins.launch_options
        self._option_sets = option_sets
        self.has_min_values = bins.strict and any(t.min_values for t in bins.launch_options.templates)
        self._common: dict[tuple[object, ...], tuple[Ints, Floats, int]] = {}

    def cheapest(
        self, lots: Sequence[Lot], options: Bools, bound: PriceBound, *, below: float, three_nodes: bool
    ) -> Repacking | None:
        """The cheapest repacking of all the lots' pods below a price that limits allow; None if there is none."""
        search = _Search(self, lots, options, bound)
        counts = np.array([lot.count for lot in lots], np.int64)
        if search.lower_bound(counts) >= below:
            return None
        repacking = search.best(counts, below, three_nodes=three_nodes)
        if repacking is None or repacking.price >= below:
            return None
        return repacking if self._bins.limits.allows_all([node.option for node in repacking.nodes]) else None

    def option_sets(self, lots: Sequence[Lot], options: Bools) -> list[OptionSet]:
        """The option sets of the lots."""
        return self._option_sets.of(lots, options)

    def keeps_min_values(self, node: Node, lots: Sequence[Lot]) -> bool:
        """Whether the node's NodeClaim satisfies minValues."""
        return self._bins.keeps_min_values(node.option, node.custom, lots, node.counts)

    def common_options(self, feasibilities: Sequence[Feasibility], options: Bools) -> tuple[Ints, Floats, int]:
        """The launch options that all of these may use together, cheapest first, their prices and custom labels."""
        distinct = {f.mask_key: f for f in feasibilities}
        allowed = options & self._bins.limits.allowed_options()
        key = (allowed.tobytes(), frozenset(distinct))
        common = self._common.get(key)
        if common is None:
            common = self._common[key] = self._find_common(list(distinct.values()), allowed)
        return common

    def _find_common(self, feasibilities: Sequence[Feasibility], allowed: Bools) -> tuple[Ints, Floats, int]:
        launch_options, limits = self._launch_options, self._bins.limits
        offerings = np.logical_and.reduce([f.offerings for f in feasibilities])
        own = np.stack([f.custom for f in feasibilities])
        custom = own.max(0)
        price = launch_options.price[:, offerings].min(1, initial=np.inf)
        allowed = allowed & np.isfinite(price) & np.logical_and.reduce([f.options for f in feasibilities])
        allowed &= ((own == 0) | (own == custom)).all(0)
        options = np.flatnonzero(allowed)
        number = int(custom[options[0]]) if len(options) else 0
        options = options[custom[options] == number]
        templates = np.unique(launch_options.template_of[options]).tolist()
        if any(launch_options.templates[t].min_values or limits.is_near(t) for t in templates):
            options = options[np.argsort(price[options], kind="stable")]
        else:
            options = options[undominated(launch_options.free[options], price[options])]
        return options, price[options], number


class _Search:
    """The search for a repacking of some lots."""

    def __init__(self, repacker: Repacker, lots: Sequence[Lot], options: Bools, bound: PriceBound) -> None:
        self._repacker = repacker
        self._lots = lots
        self._options = options
        self._free = bound.launch_options.free
        self._number_of = {id(lot): i for i, lot in enumerate(lots)}
        self._has_host_rules = any(lot.feasibility.host.own for lot in lots)
        self._requests = np.stack([lot.requests for lot in lots])
        bounds = [bound.of(lot.feasibility, lot.requests) for lot in lots]
        self._shares = np.stack([shares for shares, _ in bounds])
        self._node_prices = np.array([price for _, price in bounds])

    def lower_bound(self, counts: Ints) -> float:
        """What that many pods of each lot cost at least."""
        return max(float((counts @ self._shares).max()), float(self._node_prices[counts > 0].max(initial=0)))

    def best(self, counts: Ints, below: float, *, three_nodes: bool) -> Repacking | None:
        """The cheapest of one node, two nodes, and a good first node with one or two others."""
        best = self._single_node(counts)
        limit = below if best is None else min(below, best.price)
        option_sets = self._repacker.option_sets(self._lots, self._options)
        cheapest_rest = float(self._node_prices[counts > 0].min())
        may_take_three = three_nodes and any(s.price.min() + cheapest_rest < limit for s in option_sets)
        firsts: list[_First] | None = [] if may_take_three else None
        for option_set in option_sets:
            pair = self._two(option_set, counts, limit, firsts)
            if pair is not None and (best is None or pair.price < best.price):
                best, limit = pair, min(limit, pair.price)
        if not firsts or self._repacker.steps <= 0:
            return best
        firsts = sorted(firsts, key=lambda f: -f.rate)[:_FIRST_NODES]
        return self._after_first(firsts, counts, below, best)

    def _two(self, option_set: OptionSet, counts: Ints, below: float, firsts: list[_First] | None) -> Repacking | None:
        """The cheapest pair of nodes with a first one of the set; None if none is below.

        The first node is filled with the lots of greatest worth first, or those of least worth first. The best of them
        are added to ``firsts``, unless that is None.
        """
        numbers = [i for i in map(self._number_of.__getitem__, map(id, option_set.lots)) if counts[i]]
        self._repacker.steps -= 2 * (len(numbers) + _STEPS_OF_FILL)
        second = self._least_second(numbers, counts)
        if firsts is None and option_set.price.min() + second >= below:
            return None
        best: Repacking | None = None
        filled: _FilledSet | None = None
        for order in (numbers, numbers[::-1]):
            if filled is None or len(order) > 1:
                filled = self._fill(option_set, order, counts, below - second if firsts is None else np.inf)
                pair = self._pair(filled, counts, below if best is None else min(below, best.price), second)
                best = pair if best is None or (pair is not None and pair.price < best.price) else best
            if firsts is not None:
                firsts += filled.first_nodes()
        return best

    def _least_second(self, numbers: Sequence[int], counts: Ints) -> float:
        """What a second node costs at least, if the first holds pods of these lots only; inf if none holds the rest."""
        rest = counts.copy()
        rest[numbers] = 0
        present = np.flatnonzero(rest).tolist()
        if not present:
            return float(self._node_prices[counts > 0].min())
        options, price, _ = self._repacker.common_options([self._lots[i].feasibility for i in present], self._options)
        holding = holds(self._free[options], rest @ self._requests)
        return float(price[holding.argmax()]) if holding.any() else np.inf

    def _after_first(
        self, firsts: Sequence[_First], counts: Ints, below: float, best: Repacking | None
    ) -> Repacking | None:
        """The cheapest of the best so far and of these first nodes with one or two others for the rest."""
        limit = below if best is None else min(below, best.price)
        for first in firsts:
            rest = counts - first.node.counts
            if not first.node.counts.any() or not rest.any():
                continue
            if first.price + self.lower_bound(rest) >= limit - MIN_GAIN:
                continue
            rest_nodes = self.best(rest, limit, three_nodes=False)
            if rest_nodes is None or rest_nodes.price + first.price >= limit:
                continue
            if self._repacker.keeps_min_values(first.node, self._lots):
                limit = rest_nodes.price + first.price
                best = Repacking(limit, (first.node, *rest_nodes.nodes))
        return best

    def _fill(self, option_set: OptionSet, numbers: Sequence[int], counts: Ints, most: float) -> _FilledSet:
        """The options of a set, up to a price, filled with the pods of these lots in their order."""
        items = [as_item(self._lots[i], int(counts[i]), hosts=self._has_host_rules) for i in numbers]
        options, price = option_set.options, option_set.price
        if isfinite(most):
            options, price = options[price < most], price[price < most]
        fill = fill_options(self._free[options], options, items, option_set.custom)
        held = np.zeros((len(self._lots), fill.counts.shape[1]), np.int64)
        held[numbers] = fill.counts
        return _FilledSet(options, price, option_set.custom, held, fill.node_of, fill.worth)

    def _single_node(self, counts: Ints) -> Repacking | None:
        """The cheapest node that holds everything."""
        present = np.flatnonzero(counts).tolist()
        options, price, custom = self._repacker.common_options(
            [self._lots[i].feasibility for i in present], self._options
        )
        if not self._may_share_host(counts):
            return None
        for at in np.flatnonzero(holds(self._free[options], counts @ self._requests)).tolist():
            node = Node(int(options[at]), custom, counts)
            if self._repacker.keeps_min_values(node, self._lots):
                return Repacking(float(price[at]), (node,))
        return None

    def _pair(self, filled: _FilledSet, counts: Ints, below: float, least_second: float) -> Repacking | None:
        """A filled node and the cheapest for the rest, over all options of the set at once; None if none is below."""
        firsts = filled.first_of_pairs(below - least_second, keeps_all=self._repacker.has_min_values)
        if not len(firsts):
            return None
        price, held = filled.price[firsts], filled.held[:, filled.node_of[firsts]]
        rest = counts[:, None] - held
        # What the rest costs at least leaves few first nodes to compare with all second ones.
        tried = held.any(0) & rest.any(0) & (price + (rest.T @ self._shares).max(1) < below)
        if not tried.any():
            return None
        firsts, price, held, rest = firsts[tried], price[tried], held[:, tried], rest[:, tried]
        second_price, second, customs = self._second_nodes(rest)
        total = price + second_price
        for at in np.argsort(total, kind="stable").tolist():
            if not isfinite(total[at]):
                return None
            if not self._may_share_host(rest[:, at]):
                continue
            nodes = (
                Node(int(filled.options[firsts[at]]), filled.custom, held[:, at]),
                Node(int(second[at]), int(customs[at]), rest[:, at]),
            )
            if all(self._repacker.keeps_min_values(node, self._lots) for node in nodes):
                return Repacking(float(total[at]), nodes)
        return None

    def _second_nodes(self, rest: Ints) -> tuple[Floats, Ints, Ints]:
        """The cheapest node for each rest (lots x rests): its price, inf if none holds it; its option and labels."""
        count = rest.shape[1]
        prices = np.full(count, np.inf)
        second = np.zeros(count, np.int64)
        customs = np.zeros(count, np.int64)
        needed = rest.T @ self._requests
        by_lots_left: dict[bytes, list[int]] = {}
        for i, is_left in enumerate(rest.T > 0):
            by_lots_left.setdefault(is_left.tobytes(), []).append(i)
        for members in by_lots_left.values():
            left = np.flatnonzero(rest[:, members[0]]).tolist()
            options, price, custom = self._repacker.common_options(
                [self._lots[i].feasibility for i in left], self._options
            )
            if not len(options):
                continue
            held = holds_each(self._free[options], needed[members])
            cheapest = held.argmax(1)
            prices[members] = np.where(held[np.arange(len(members)), cheapest], price[cheapest], np.inf)
            second[members] = options[cheapest]
            customs[members] = custom
        return prices, second, customs

    def _may_share_host(self, counts: Ints) -> bool:
        """Whether host rules allow that many pods of each lot on one host."""
        if not self._has_host_rules:
            return True
        present: dict[int, int] = {}
        caps: dict[int, int] = {}
        for lot, n in zip(self._lots, counts.tolist(), strict=True):
            if n:
                for term, weight in lot.feasibility.host.match.items():
                    present[term] = present.get(term, 0) + weight * n
                for term, cap in lot.feasibility.host.own.items():
                    caps[term] = min(caps.get(term, cap), cap)
        return all(present.get(term, 0) <= cap for term, cap in caps.items())
