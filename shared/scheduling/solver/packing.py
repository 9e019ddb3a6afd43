"""Packs pods into new nodes at the least price.

One node is chosen at a time. A node of every launch option is filled with the pods that are left, greatest worth
first; the launch option whose pods are worth most for its price is opened, as often as the same pods fill it again. A
pod is worth its share of the node that would run it most cheaply. Pods of one size and feasibility are counted, never
looped over.

Pods with anti-affinity to their own replicas are packed first. They need many nodes whatever their size, and the
capacity that they leave is free for the other pods.

Of launch options that the same pods may use, only those that no other dominates (at least as large, no more expensive)
can be the best. Option sets are kept with the launch options, as all plans of a run need the same again and again.
"""

from __future__ import annotations

from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import Fill, RunFill, as_item, fill_options, lots_of
from shared.scheduling.solver.host_anti_affinity import HostAntiAffinity
from shared.scheduling.solver.residual import Residual
from shared.scheduling.state.instance_type_arrays import undominated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bins
    from shared.scheduling.solver.fit import Item, Lot
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.node_pool_limits import NodePoolLimits
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Choice = tuple["OptionSet", int, Ints]
    OptionChoice = tuple[Ints, Floats, int]

_FEW_LOTS = 64
"""Up to this many lots are filled lot by lot over all launch options; beyond, launch option by launch option."""
_REPEATED_RATE = 0.985
"""A launch option is opened again without a search while its pods are worth at least this share of what was found."""
_TINY = 1e-9


class Packer:
    """Packs items into bins. Bins stay open, so later items may use the capacity that is left in them.

    ``cheapest_per_pod``: how many replicas share a host that may run only a few of them. True: as many as make a pod
    cheapest. False: as many as may. ``shares_hosts``: pods that only prefer different hosts share one as is cheapest in
    any case. ``replica_count_matters`` says whether that makes a difference.
    """

    def __init__(self, bins: Bins, *, cheapest_per_pod: bool = False, shares_hosts: bool = True) -> None:
        self.bins = bins
        self._shares_hosts = shares_hosts
        self.option_sets = OptionSets(bins.launch_options, bins.limits)
        self.replica_count_matters = False
        self._cheapest_per_pod = cheapest_per_pod
        self._launch_options = bins.launch_options
        needs_min_values = [bins.strict and bool(t.min_values) for t in bins.launch_options.templates]
        self._needs_min_values: Bools = np.array(needs_min_values, np.bool_)[bins.launch_options.template_of]

    def pack(self, items: Sequence[Item], options: Bools) -> None:
        """Packs what the items still have into nodes of these launch options; pods that fit nowhere stay in them."""
        items = self._packable(items, options)
        if not items:
            return
        exclusive = [i for i in items if _limits_own_replicas(i)]
        shared = [i for i in items if not _limits_own_replicas(i)]
        self._fill_residual(items)
        if exclusive:
            self._pack_exclusive(exclusive, options)
            self._fill_residual(shared)
            left = [i for i in exclusive if i.pods]
            if left and (options & self._needs_min_values).any():
                self._pack_lots(lots_of([*shared, *left], hosts=True), options, hosts=True)
                return
        self._pack_shared(shared, options)

    def _packable(self, items: Sequence[Item], options: Bools) -> list[Item]:
        """The items with pods left that any of these launch options suits."""
        feasibilities = {i.feasibility.mask_key: i.feasibility for i in items}
        usable = {mask for mask, feasibility in feasibilities.items() if (feasibility.options & options).any()}
        return [i for i in items if i.pods and isfinite(i.worth) and i.feasibility.mask_key in usable]

    def _pack_exclusive(self, items: Sequence[Item], options: Bools) -> None:
        """Spreads replicas over nodes, which other replicas may share; not where minValues restrict the nodes."""
        assignment = HostAntiAffinity(
            self._launch_options,
            self.bins.limits,
            options & ~self._needs_min_values,
            cheapest_per_pod=self._cheapest_per_pod,
            shares_hosts=self._shares_hosts,
        )
        assignment.assign(lots_of(items, hosts=True), self.bins.open)
        self.replica_count_matters |= assignment.replica_count_matters

    def _pack_shared(self, items: list[Item], options: Bools) -> None:
        """Packs items that don't limit their own replicas; some may have anti-affinity to other pods."""
        with_host_rules = [i for i in items if i.feasibility.host.own]
        if with_host_rules and len(items) > _FEW_LOTS:
            # with many sizes host rules cost too much time: items with the same rules have nodes of their own
            alike: dict[object, list[Item]] = {}
            for item in with_host_rules:
                alike.setdefault((item.feasibility.host.key, item.feasibility.mask_key), []).append(item)
            for members in alike.values():
                self._pack_lots(lots_of(members, hosts=False), options, hosts=False)
            items = [i for i in items if not i.feasibility.host.own]
            self._fill_residual(items)
            with_host_rules = []
        self._pack_lots(lots_of(items, hosts=bool(with_host_rules)), options, hosts=bool(with_host_rules))

    def _fill_residual(self, items: Sequence[Item]) -> None:
        """Packs pods into the capacity that is left in open bins, where that costs nothing."""
        bins = [b for b in self.bins.opened if not self.bins.needs_min_values(b.option)]
        if bins and items:
            residual = Residual(self._launch_options, bins)
            for lot in lots_of(items, hosts=True):
                residual.fill(lot)
            residual.close()

    # --- the launch option whose pods are worth most for its price ---

    def _pack_lots(self, lots: list[Lot], options: Bools, *, hosts: bool) -> None:
        repeated: tuple[OptionSet, int, float] | None = None
        searched: dict[object, tuple[Choice, float] | None] = {}
        while lots:
            choice = self._repeat(*repeated) if repeated is not None and not hosts else None
            if choice is None:
                best = self._search(lots, options, searched, hosts=hosts)
                if best is None:
                    return
                choice, rate = best
                option_set, at, _ = choice
                is_near = self.bins.limits.is_near_for(int(option_set.options[at]))
                repeated = (option_set, at, rate) if len(lots) > _FEW_LOTS and not is_near else None
            self._open(*choice)
            lots = [lot for lot in lots if lot.count]

    def _repeat(self, option_set: OptionSet, at: int, rate: float) -> Choice | None:
        """The launch option of the last search, if it can be filled about as well again."""
        counts = self._fill_each(option_set, [int(option_set.options[at])])[:, 0]
        if float(counts @ option_set.worth) / max(float(option_set.price[at]), _TINY) < rate * _REPEATED_RATE:
            return None
        return option_set, at, counts

    def _search(
        self, lots: Sequence[Lot], options: Bools, searched: dict[object, tuple[Choice, float] | None], *, hosts: bool
    ) -> tuple[Choice, float] | None:
        """The launch option with the greatest worth for its price, and that rate.

        ``searched`` keeps the best of each option set, for as long as no pod of its lots is packed.
        """
        best: tuple[Choice, float] | None = None
        for option_set in self.option_sets.of(lots, options):
            pods = tuple([(id(lot), lot.count) for lot in option_set.lots])
            key = (id(option_set.options), option_set.custom, pods)
            if key not in searched:
                searched[key] = self._best_option(option_set, hosts=hosts)
            candidate = searched[key]
            if candidate is not None and (best is None or candidate[1] > best[1] * (1 + _TINY)):
                best = candidate
        return best

    def _best_option(self, option_set: OptionSet, *, hosts: bool) -> tuple[Choice, float] | None:
        """The launch option of a set whose pods are worth most for its price; None if none holds a pod."""
        fill = self._fill(option_set, hosts=hosts)
        rate = fill.worth / np.maximum(option_set.price, _TINY)
        for at in self._greatest_first(rate, option_set):
            if rate[at] <= 0:
                return None
            counts = fill.counts[:, fill.node_of[at]]
            if self.bins.keeps_min_values(int(option_set.options[at]), option_set.custom, option_set.lots, counts):
                return (option_set, at, counts), float(rate[at])
        return None

    def _greatest_first(self, rate: Floats, option_set: OptionSet) -> list[int]:
        """The options of a set by rate; only the greatest unless NodeClaims must satisfy minValues."""
        if not self._needs_min_values[option_set.options].any():
            return [int(rate.argmax())]
        by_rate: list[int] = np.argsort(-rate, kind="stable").tolist()
        return by_rate

    def _fill(self, option_set: OptionSet, *, hosts: bool) -> Fill:
        if hosts or len(option_set.lots) <= _FEW_LOTS:
            items = [as_item(lot, lot.count, hosts=hosts) for lot in option_set.lots]
            free = self._launch_options.free[option_set.options]
            return fill_options(free, option_set.options, items, option_set.custom)
        counts = self._fill_each(option_set, option_set.options.tolist())
        return Fill(counts, np.arange(counts.shape[1]), option_set.worth @ counts)

    def _fill_each(self, option_set: OptionSet, options: Sequence[int]) -> Ints:
        """How many pods of each lot one node of each launch option holds: lots x options."""
        available = np.array([lot.count for lot in option_set.lots], np.int64)
        counts = np.zeros((len(available), len(options)), np.int64)
        fills: dict[tuple[int, ...], tuple[Ints, RunFill | None]] = {}
        for j, option in enumerate(options):
            infeasible = tuple(
                [mask for mask, f in option_set.feasibilities.items() if not _is_allowed(f, option, option_set.custom)]
            )
            if infeasible not in fills:
                present = np.flatnonzero(np.where(np.isin(option_set.masks, infeasible), 0, available))
                fill = RunFill(option_set.requests[present], available[present]) if len(present) else None
                fills[infeasible] = (present, fill)
            present, fill = fills[infeasible]
            if fill is not None:
                counts[present, j] = fill.fill(self._launch_options.free[option])
        return counts

    def _open(self, option_set: OptionSet, at: int, counts: Ints) -> None:
        """Opens bins with that many pods of each lot, as many as the pods and the limits allow."""
        taken = [(lot, n) for lot, n in zip(option_set.lots, counts.tolist(), strict=True) if n]
        option = int(option_set.options[at])
        repetitions = min(lot.count // n for lot, n in taken)
        for _ in range(max(1, min(repetitions, self.bins.limits.max_count(option)))):
            self.bins.open(option, option_set.custom, [part for lot, n in taken for part in lot.take(n)])


def _limits_own_replicas(item: Item) -> bool:
    """Whether a host limits how many pods of the item it runs: anti-affinity or spread over hosts, or host ports."""
    host = item.feasibility.host
    return any(term in host.match for term in host.own)


def _is_allowed(feasibility: Feasibility, option: int, custom: int) -> bool:
    return bool(feasibility.options[option]) and int(feasibility.custom[option]) in {0, custom}


# --- the launch options that are worth considering ---


class OptionSet:
    """Lots that can share nodes, the launch options for them with their prices, and their custom labels."""

    def __init__(self, lots: Sequence[Lot], options: Ints, price: Floats, custom: int) -> None:
        self.lots = lots
        self.options = options
        self.price = price
        self.custom = custom

    @cached_property
    def requests(self) -> Ints:
        """What a pod of each lot requests: lots x resources."""
        return np.stack([lot.requests for lot in self.lots])

    @cached_property
    def worth(self) -> Floats:
        """What a pod of each lot is worth."""
        return np.array([lot.worth for lot in self.lots])

    @cached_property
    def masks(self) -> Ints:
        """The ``mask_key`` of each lot's feasibility."""
        return np.array([lot.feasibility.mask_key for lot in self.lots], np.int64)

    @cached_property
    def feasibilities(self) -> dict[int, Feasibility]:
        """One feasibility for each ``mask_key``."""
        return {lot.feasibility.mask_key: lot.feasibility for lot in self.lots}


class OptionSets:
    """Finds the option sets of lots, as NodePool limits allow now."""

    def __init__(self, launch_options: LaunchOptions, limits: NodePoolLimits) -> None:
        self._launch_options = launch_options
        self._limits = limits

    def of(self, lots: Sequence[Lot], options: Bools) -> list[OptionSet]:
        """One set for each combination of lots that can share an offering and custom labels."""
        allowed = options & self._limits.allowed_options()
        is_near = tuple([self._limits.is_near(t) for t in range(len(self._launch_options.templates))])
        feasibilities = {lot.feasibility.mask_key: lot.feasibility for lot in lots}
        key = (allowed.tobytes(), is_near, frozenset(feasibilities))
        sharing_options = self._launch_options.sharing_options
        if key not in sharing_options:
            sharing_options[key] = list(self._sharing(list(feasibilities.values()), allowed, key[:2]))
        return [
            OptionSet([lot for lot in lots if lot.feasibility.mask_key in masks], *choice)
            for masks, choices in sharing_options[key]
            for choice in choices
        ]

    def _sharing(
        self, feasibilities: Sequence[Feasibility], allowed: Bools, limits_key: tuple[object, ...]
    ) -> Iterator[tuple[frozenset[int], list[OptionChoice]]]:
        """The feasibilities that share an offering, by ``mask_key``, and the launch options to consider for them."""
        chosen_options = self._launch_options.undominated_options
        for offerings in _equal_columns(np.stack([f.offerings for f in feasibilities])):
            sharing = [f for f in feasibilities if f.offerings[offerings[0]]]
            if sharing:
                masks = frozenset(f.mask_key for f in sharing)
                key = (*limits_key, masks, offerings.tobytes())
                if key not in chosen_options:
                    chosen_options[key] = self._choose(sharing, allowed, offerings)
                yield masks, chosen_options[key]

    def _choose(self, feasibilities: Sequence[Feasibility], allowed: Bools, offerings: Ints) -> list[OptionChoice]:
        """The launch options to consider in these offerings, with their prices, by custom labels."""
        price = self._launch_options.price[:, offerings].min(1)
        usable = np.logical_or.reduce([f.options for f in feasibilities])
        options = np.flatnonzero(allowed & np.isfinite(price) & usable)
        choices: list[OptionChoice] = []
        for custom in sorted({c for f in feasibilities for c in np.unique(f.custom[options]).tolist()}):
            chosen = self._undominated(feasibilities, options, price, custom)
            if len(chosen):
                choices.append((chosen, price[chosen], custom))
        return choices

    def _undominated(self, feasibilities: Sequence[Feasibility], options: Ints, price: Floats, custom: int) -> Ints:
        """The launch options that no other dominates which the same pods may use.

        All options of NodePools with minValues or near limits stay, as there more counts than size and price.
        """
        launch_options = self._launch_options
        own = np.stack([f.custom[options] for f in feasibilities])
        allowed = np.stack([f.options[options] for f in feasibilities]) & ((own == 0) | (own == custom))
        usable = allowed.any(0) & ((own == custom) & allowed).any(0) if custom else allowed.any(0)
        options, allowed = options[usable], allowed[:, usable]
        groups: dict[tuple[int, bytes], list[int]] = {}
        templates = launch_options.template_of[options].tolist()
        for j, (option, template) in enumerate(zip(options.tolist(), templates, strict=True)):
            keeps_all = launch_options.templates[template].min_values or self._limits.is_near(template)
            groups.setdefault((template if keeps_all else -1, allowed[:, j].tobytes()), []).append(option)
        kept: list[int] = []
        for (template, _), members in groups.items():
            if template >= 0:
                kept.extend(members)
            else:
                group = np.array(members)
                kept.extend(group[undominated(launch_options.free[group], price[group])].tolist())
        return np.array(sorted(kept), np.int64)


def _equal_columns(matrix: Bools) -> list[Ints]:
    """The indices of a matrix' columns, equal columns together."""
    groups: dict[bytes, list[int]] = {}
    for j in range(matrix.shape[1]):
        groups.setdefault(matrix[:, j].tobytes(), []).append(j)
    return [np.array(group) for group in groups.values()]
