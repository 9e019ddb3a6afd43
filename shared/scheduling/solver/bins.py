"""The new nodes of a plan: bins, each with the launch option it counts as and the pods it holds.

After packing, a size is reserved for bins where NodePool limits are near or minValues need larger nodes: instance types
that a limit doesn't allow are left out of the NodeClaim, rather than pods out of the cluster.

Limited resources have prices, which show before a limit is hit. Pods come over seconds, in several decisions. If the
first get the cheapest nodes, with more of a limited resource than the pods need, the limit leaves the last ones out. So
while a limit is likely to be reached, a node costs what EC2 asks and a price for what it takes of the limit. That is
the shadow price of the limit: like the dual variable of a linear program it is zero while the limit doesn't bind, and
rises with its use. The online packing of Buchbinder and Naor (The Design of Competitive Online Algorithms via a
Primal-Dual Approach, 2009) also lets prices rise with the used share.

What is used, and a multiple of what is pending now, is the expected use. Only pods count as pending that no NodePool
without this limit may run. Nodes as such (the limit ``nodes``) have no price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.api.nodepool import node_group_of
from shared.api.quantity import add
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.scheduling.solver.fit import holds
from shared.scheduling.state.min_values import satisfies_min_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.fit import Item, Lot
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate
    from shared.scheduling.state.node_pool_limits import NodePoolLimits
    from shared.scheduling.state.state_nodes import StateNodes
    from shared.scheduling.topology.feasibility import Feasibility, FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Content = list[tuple[Item, list[str]]]

_EXPECTED = 5
"""How many times the pending pods are expected in all: a decision sees about a second of a burst."""
_FREE_SHARE = 0.5
"""The expected use, as a share of the limit, up to which a limited resource has no price."""
_STEEPNESS = 8.0
"""By how much the price grows while the expected use grows by the whole limit, in least prices of the resource."""
_GREATEST = 12.0
"""The greatest price of a limited resource, in least prices of the resource."""


class Bin(MutableStruct):
    """One new node: the launch option it is filled to, the offerings it may come from, and its pods.

    ``custom`` numbers what its pods require of custom labels. ``reserved`` is the size that it counts with against its
    NodePool's limits, if its NodeClaim may list no larger instance types; None if it counts as its launch option.
    """

    option: int
    offerings: Bools
    custom: int
    used: Ints
    content: Content = msgspec.field(default_factory=list)
    reserved: Ints | None = None

    def price(self, launch_options: LaunchOptions) -> float:
        """The least price of its launch option in its offerings, USD per hour."""
        return float(launch_options.price[self.option][self.offerings].min())

    @property
    def masks(self) -> frozenset[int]:
        """The ``mask_key`` of its pods' feasibilities."""
        return frozenset([item.feasibility.mask_key for item, _ in self.content])

    @property
    def feasibilities(self) -> list[Feasibility]:
        """The feasibilities of its pods, each once."""
        return list({id(item.feasibility): item.feasibility for item, _ in self.content}.values())


class Bins:
    """All bins of a plan; NodePool limits count each as it is opened or closed.

    ``strict``: NodeClaims must satisfy minValues (minValuesPolicy Strict).
    """

    def __init__(self, launch_options: LaunchOptions, limits: NodePoolLimits, *, strict: bool) -> None:
        self.launch_options = launch_options
        self.limits = limits
        self.strict = strict
        self.opened: list[Bin] = []

    def template(self, option: int) -> NodeClaimTemplate:
        """The NodeClaim template of a launch option."""
        return self.launch_options.templates[int(self.launch_options.template_of[option])]

    def open(self, option: int, custom: int, content: Content) -> Bin:
        """Opens a bin with this content."""
        used = np.zeros(len(self.launch_options.resources), np.int64)
        offerings = np.ones(len(self.launch_options.offerings), np.bool_)
        for item, pods in content:
            used += item.requests * len(pods)
            offerings &= item.feasibility.offerings
        bin_ = Bin(option, offerings, custom, used, content)
        self.opened.append(bin_)
        self.limits.add(option)
        return bin_

    def close(self, bin_: Bin) -> None:
        """Closes a bin; what it holds is the caller's."""
        self.opened.remove(bin_)
        if bin_.reserved is not None:
            self.limits.release(int(self.launch_options.template_of[bin_.option]), bin_.reserved)
        else:
            self.limits.remove(bin_.option)

    def forget(self, bins: Collection[Bin]) -> None:
        """Drops bins from the list; limits don't count them any more already."""
        gone = {id(b) for b in bins}
        self.opened = [b for b in self.opened if id(b) not in gone]

    def prices(self, bins: Sequence[Bin]) -> Floats:
        """The price of each bin, as :meth:`Bin.price`."""
        if not bins:
            return np.zeros(0)
        price = self.launch_options.price[np.array([b.option for b in bins])]
        prices: Floats = np.where(np.stack([b.offerings for b in bins]), price, np.inf).min(1)
        return prices

    def needs_min_values(self, option: int) -> bool:
        """Whether a NodeClaim of this launch option must keep several values of a label."""
        return self.strict and bool(self.template(option).min_values)

    def keeps_min_values(self, option: int, custom: int, lots: Iterable[Lot], counts: Ints) -> bool:
        """Whether a NodeClaim of this launch option satisfies minValues, if it must, with these counts of pods."""
        if not self.needs_min_values(option):
            return True
        template = self.template(option)
        present = [(lot, n) for lot, n in zip(lots, counts.tolist(), strict=True) if n]
        used = sum((lot.requests * n for lot, n in present), np.zeros(len(self.launch_options.resources), np.int64))
        offerings = np.logical_and.reduce([lot.feasibility.offerings for lot, _ in present])
        options = fitting_options(
            self.launch_options, template, [lot.feasibility for lot, _ in present], used, offerings, custom
        )
        return satisfies_min_values(self.launch_options, template, options, offerings)


def fitting_options(
    launch_options: LaunchOptions,
    template: NodeClaimTemplate,
    feasibilities: Sequence[Feasibility],
    used: Ints,
    offerings: Bools,
    custom: int,
) -> Ints:
    """The template's launch options that hold this much, suit the pods, and are offered in one of the offerings."""
    distinct = {f.mask_key: f for f in feasibilities}
    key = (template.node_pool, frozenset(distinct), offerings.tobytes(), custom)
    options = launch_options.fitting_options.get(key)
    if options is None:
        allowed = np.isfinite(launch_options.price[template.options][:, offerings]).any(1)
        for feasibility in distinct.values():
            own = feasibility.custom[template.options]
            allowed &= feasibility.options[template.options] & ((own == 0) | (own == custom))
        options = launch_options.fitting_options[key] = np.flatnonzero(allowed) + template.options.start
    fitting: Ints = options[holds(launch_options.free[options], used)]
    return fitting


# --- reserved sizes ---


class _GrowingSize(Struct, eq=False):
    """A bin that counts as its launch option (``size``), and all launch options that its NodeClaim may list."""

    bin: Bin
    size: Ints
    options: Ints
    growth: Ints


def reserve_sizes(bins: Bins) -> list[Bin]:
    """Reserves a size for bins whose NodeClaims could exceed NodePool limits if they listed all that fits.

    Returns the bins that can't satisfy minValues within the limits.
    """
    members = _bins_to_check(bins)
    growing = {number: [_growing_size(bins, bin_) for bin_ in of] for number, of in members.items()}
    growth = {number: np.add.reduce([own.growth for own in of]) for number, of in growing.items()}
    over_limits: list[Bin] = []
    priced = {number for number, of in members.items() if bins.launch_options.has_limit_price(of[0].option)}
    for number in sorted(bins.limits.exceeded_by(growth) | priced):
        for own in growing[number]:
            reserved = _least_size(bins, number, own.bin, own.options)
            if reserved is None:
                over_limits.append(own.bin)
                reserved = own.size
            bins.limits.reserve(number, reserved - own.size)
            own.bin.reserved = reserved
    return over_limits


def _bins_to_check(bins: Bins) -> dict[int, list[Bin]]:
    """By template, the bins without a reserved size; not where even the largest launch options keep to the limits."""
    launch_options, limits = bins.launch_options, bins.limits
    members: dict[int, list[Bin]] = {}
    largest: dict[int, Ints] = {}
    for number, template in enumerate(launch_options.templates):
        own = [b for b in bins.opened if b.reserved is None and launch_options.template_of[b.option] == number]
        if own and limits.has_limits(number):
            members[number] = own
            options = np.arange(template.options.start, template.options.stop)
            largest[number] = limits.largest_size(options) * len(own)
    priced = {number for number, own in members.items() if launch_options.has_limit_price(own[0].option)}
    return {number: members[number] for number in limits.exceeded_by(largest) | priced}


def _growing_size(bins: Bins, bin_: Bin) -> _GrowingSize:
    options = fitting_options(
        bins.launch_options, bins.template(bin_.option), bin_.feasibilities, bin_.used, bin_.offerings, bin_.custom
    )
    size = bins.limits.largest_size(np.array([bin_.option]))
    return _GrowingSize(bin_, size, options, bins.limits.largest_size(options) - size)


def release_sizes(bins: Bins) -> None:
    """Reverts :meth:`reserve_sizes`, so that bins may change; not where minValues need the size."""
    for bin_ in bins.opened:
        if bin_.reserved is not None and not bins.needs_min_values(bin_.option):
            bins.limits.release(int(bins.launch_options.template_of[bin_.option]), bin_.reserved)
            bins.limits.add(bin_.option)
            bin_.reserved = None


def _least_size(bins: Bins, number: int, bin_: Bin, options: Ints) -> Ints | None:
    """The least size with which the bin's NodeClaim satisfies minValues; None if limits don't allow it."""
    limits = bins.limits
    size = limits.largest_size(np.array([bin_.option]))
    if not bins.needs_min_values(bin_.option):
        return size
    template = bins.launch_options.templates[number]
    by_share = options[np.argsort(limits.share(number, options), kind="stable")]
    for option in (bin_.option, *by_share.tolist()):
        larger = limits.largest_size(np.array([bin_.option, option]))
        if limits.allows_size(number, larger - size) and satisfies_min_values(
            bins.launch_options, template, options[limits.within_size(options, larger)], bin_.offerings
        ):
            return larger
    return None


def with_limit_prices(checker: FeasibilityChecker, groups: Sequence[tuple[PodGroup, list[SizedPods]]]) -> LaunchOptions:
    """The launch options with prices of limited resources; the same object if no limit is likely to be reached."""
    launch_options = checker.launch_options
    limits = list(_limits(launch_options, checker.state_nodes))
    if not limits:
        return launch_options
    demand = _Demand(checker, groups)
    surcharge = np.zeros(len(launch_options.price))
    for limit in limits:
        pending = demand.of(limit)
        if pending > 0:
            share = (limit.used + _EXPECTED * pending) / max(limit.amount, 1)
            factor = min(max(0.0, (share - _FREE_SHARE) * _STEEPNESS), _GREATEST)
            size = launch_options.capacity[:, limit.resource] * limit.options
            surcharge += factor * _least_price(launch_options, size) * size
    if not surcharge.any():
        return launch_options
    return with_fields(
        launch_options,
        price=launch_options.price + surcharge[:, None],
        offered_price=launch_options.price,
        # what was found with other prices doesn't hold
        fitting_options={},
        undominated_options={},
        sharing_options={},
    )


class _Limit(Struct, eq=False):
    """A limit: the column of its resource, its amount, what is used of it, and the launch options that it holds for."""

    resource: int
    amount: int
    used: int
    options: Bools


def _limits(launch_options: LaunchOptions, state_nodes: StateNodes) -> Iterator[_Limit]:
    """The limits of NodePools, and those over all of them."""
    for template in launch_options.templates:
        if template.limits:
            options = np.zeros(len(launch_options.price), np.bool_)
            options[template.options] = True
            usage = state_nodes.usage.get(template.node_pool, {})
            yield from _limits_of(template.limits, usage, options, launch_options)
    if launch_options.cluster_limits:
        counted = np.array([not node_group_of(t.node_pool) for t in launch_options.templates], np.bool_)
        usage = add({}, *(u for pool, u in state_nodes.usage.items() if not node_group_of(pool)))
        yield from _limits_of(launch_options.cluster_limits, usage, counted[launch_options.template_of], launch_options)


def _limits_of(
    limits: Mapping[str, int], usage: Mapping[str, int], options: Bools, launch_options: LaunchOptions
) -> Iterator[_Limit]:
    for name, amount in sorted(limits.items()):
        if name in launch_options.resources and options.any():
            yield _Limit(launch_options.resources.index(name), amount, usage.get(name, 0), options)


def _least_price(launch_options: LaunchOptions, size: Ints) -> float:
    """The least price of one unit of a resource, USD per hour; ``size`` is what each launch option has of it."""
    price = launch_options.price.min(1, initial=np.inf)
    has = size > 0
    return float((price[has] / size[has]).min(initial=np.inf)) if has.any() else 0.0


class _Demand:
    """What pending pods take of limited resources on the nodes that are cheapest for them."""

    def __init__(self, checker: FeasibilityChecker, groups: Sequence[tuple[PodGroup, list[SizedPods]]]) -> None:
        self._launch_options = checker.launch_options
        self._price = checker.launch_options.price.min(1, initial=np.inf)
        self._free = np.maximum(checker.launch_options.free, 1).astype(np.float64)
        self._sizes_by_options: dict[bytes, tuple[Bools, dict[bytes, tuple[Floats, int]]]] = {}
        for group, sizes in groups:
            options = _suitable(checker, group)
            _, counted = self._sizes_by_options.setdefault(options.tobytes(), (options, {}))
            for sized in sizes:
                requests = self._requests(sized)
                _, count = counted.get(requests.tobytes(), (requests, 0))
                counted[requests.tobytes()] = (requests, count + len(sized.pods))

    def of(self, limit: _Limit) -> float:
        """What the pods take of a limit that no launch option without it suits."""
        total = 0.0
        for suitable, sizes in self._sizes_by_options.values():
            if (suitable & limit.options).any() and not (suitable & ~limit.options).any():
                requests = np.stack([r for r, _ in sizes.values()])
                counts = np.array([n for _, n in sizes.values()])
                total += float(counts @ self._taken(np.flatnonzero(suitable), requests, limit.resource))
        return total

    def _taken(self, options: Ints, requests: Floats, resource: int) -> Floats:
        """What a pod of each size takes of a resource on its cheapest node, in proportion to its share of the node."""
        share = np.zeros((len(requests), len(options)))
        for r in np.flatnonzero(requests.any(0)).tolist():
            np.maximum(share, requests[:, r, None] / self._free[None, options, r], out=share)
        price = np.where(share > 1, np.inf, share * self._price[options])
        cheapest = price.argmin(1)
        rows = np.arange(len(requests))
        taken = share[rows, cheapest] * self._launch_options.capacity[options[cheapest], resource]
        result: Floats = np.where(np.isfinite(price[rows, cheapest]), taken, 0.0)
        return result

    def _requests(self, sized: SizedPods) -> Floats:
        return np.array([sized.requests.get(name, 0) for name in self._launch_options.resources], np.float64)


def _suitable(checker: FeasibilityChecker, group: PodGroup) -> Bools:
    """The launch options that suit pods of the group by labels and taints, whatever their size."""
    suitable = np.zeros(len(checker.launch_options.price), np.bool_)
    for alternative in group.alternatives:
        suitable |= checker.check(alternative, group.tolerations, tolerate_prefer_no_schedule=True)[0]
    return suitable
