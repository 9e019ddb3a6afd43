"""The new nodes of a plan: bins, each with the launch option it counts as and the pods it holds.

After packing, a size is reserved for bins where NodePool limits are near or minValues need larger nodes: instance types
that a limit doesn't allow are left out of the NodeClaim, rather than pods out of the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.base.struct import MutableStruct, Struct
from shared.scheduling.solver.fit import holds
from shared.scheduling.state.min_values import satisfies_min_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.fit import Item, Lot
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate
    from shared.scheduling.state.node_pool_limits import NodePoolLimits
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Content = list[tuple[Item, list[str]]]


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
