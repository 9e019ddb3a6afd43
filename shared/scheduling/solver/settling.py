"""Settles what each bin is launched as: the cheapest launch option that holds it, within NodePool limits.

Runs after packing and before the NodeClaims: which instance types a NodeClaim may list depends on what is settled here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.bins import fitting_options
from shared.scheduling.solver.fit import holds, holds_each
from shared.scheduling.state.launch_options import NodePoolWeights
from shared.scheduling.state.min_values import satisfies_min_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bin, Bins
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_TINY = 1e-12
_BINS_COMPARED = 1024
"""How many bins are compared with all launch options at once; bounds memory."""


def settle(bins: Bins) -> None:
    """Moves each bin to the cheapest launch option that holds it, of any NodePool of the same weight."""
    weights = NodePoolWeights(bins.launch_options)
    unreserved = [b for b in bins.opened if b.reserved is None]
    templates = bins.launch_options.templates
    # bins may move freely between NodePools without minValues and near limits
    is_free = [not (bins.limits.is_near(i) or (bins.strict and t.min_values)) for i, t in enumerate(templates)]
    cheapest = _cheapest(
        bins.launch_options, unreserved, [t for t, free in zip(templates, is_free, strict=True) if free]
    )
    restricted = [i for i, free in enumerate(is_free) if not free]
    prices = bins.prices(unreserved).tolist()
    for bin_, price, (free_price, free_option) in zip(unreserved, prices, cheapest, strict=True):
        best = (free_price, free_option) if free_price < price - _TINY else (price, bin_.option)
        best = _best_restricted(
            bins, [i for i in restricted if templates[i].weight == weights.of(bin_.option)], bin_, best
        )
        if best[1] != bin_.option:
            bins.limits.remove(bin_.option)
            bin_.option = best[1]
            bins.limits.add(bin_.option)


def _best_restricted(bins: Bins, numbers: Iterable[int], bin_: Bin, best: tuple[float, int]) -> tuple[float, int]:
    """The best price and launch option so far, or that of one of these templates if it is cheaper."""
    for number in numbers:
        candidate = _cheapest_restricted(bins, number, bin_)
        if candidate is not None and candidate[0] < best[0] - _TINY:
            best = candidate
    return best


def _cheapest_restricted(bins: Bins, number: int, bin_: Bin) -> tuple[float, int] | None:
    """The price and launch option of a NodePool with minValues or a near limit; near limits allow no larger one."""
    launch_options, template = bins.launch_options, bins.launch_options.templates[number]
    options = fitting_options(launch_options, template, bin_.feasibilities, bin_.used, bin_.offerings, bin_.custom)
    if not len(options):
        return None
    if bins.strict and not satisfies_min_values(launch_options, template, options, bin_.offerings):
        return None
    if bins.limits.is_near(number):
        if number != launch_options.template_of[bin_.option]:
            return None
        options = options[holds(-launch_options.capacity[options], -launch_options.capacity[bin_.option])]
        if not len(options):
            return None
    price = launch_options.price[options][:, bin_.offerings].min(1)
    first = int(np.lexsort((options, price))[0])
    return float(price[first]), int(options[first])


def _cheapest(
    launch_options: LaunchOptions, bins: Sequence[Bin], templates: Sequence[NodeClaimTemplate]
) -> list[tuple[float, int]]:
    """The price and launch option of the cheapest that holds each bin; inf where none does."""
    cheapest = [(np.inf, -1)] * len(bins)
    weights = NodePoolWeights(launch_options)
    bin_weights = [weights.of(b.option) for b in bins]
    for template in templates:
        of_weight = [i for i, weight in enumerate(bin_weights) if weight == template.weight]
        for members in group_alike(of_weight, bins).values():
            options, price = options_by_price(launch_options, template, bins[members[0]])
            if not len(options):
                continue
            held = holds_each(launch_options.free[options], np.stack([bins[i].used for i in members]))
            first = held.argmax(1)
            is_held = held[np.arange(len(first)), first].tolist()
            for i, j, holding in zip(members, first.tolist(), is_held, strict=True):
                if holding and price[j] < cheapest[i][0] - _TINY:
                    cheapest[i] = (float(price[j]), int(options[j]))
    return cheapest


def group_alike(members: Iterable[int], bins: Sequence[Bin]) -> dict[object, list[int]]:
    """The bins, by number, that may be launched from the same options in the same offerings."""
    groups: dict[object, list[int]] = {}
    for i in members:
        bin_ = bins[i]
        groups.setdefault((bin_.masks, bin_.offerings.tobytes(), bin_.custom), []).append(i)
    return {(key, n): chunk for key, group in groups.items() for n, chunk in enumerate(_chunks(group))}


def _chunks(members: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(members), _BINS_COMPARED):
        yield members[start : start + _BINS_COMPARED]


def options_by_price(launch_options: LaunchOptions, template: NodeClaimTemplate, bin_: Bin) -> tuple[Ints, Floats]:
    """The template's launch options that the bin's pods may use, whatever their size, cheapest first; their prices."""
    nothing = np.zeros_like(bin_.used)
    options = fitting_options(launch_options, template, bin_.feasibilities, nothing, bin_.offerings, bin_.custom)
    price = launch_options.price[options][:, bin_.offerings].min(1, initial=np.inf)
    order = np.argsort(price, kind="stable")
    return options[order], price[order]


# --- NodePool limits ---


def reserve_sizes(bins: Bins) -> list[Bin]:
    """Reserves a size for bins whose NodeClaims could exceed NodePool limits if they listed all that fits.

    Returns the bins that can't satisfy minValues within the limits.
    """
    launch_options, limits = bins.launch_options, bins.limits
    over_limits: list[Bin] = []
    for number, template in enumerate(launch_options.templates):
        members = [b for b in bins.opened if b.reserved is None and launch_options.template_of[b.option] == number]
        if not members or not limits.has_limits(number):
            continue
        largest = limits.largest_size(np.arange(template.options.start, template.options.stop))
        if limits.allows_size(number, largest * len(members)):
            continue
        options = [
            fitting_options(launch_options, template, b.feasibilities, b.used, b.offerings, b.custom) for b in members
        ]
        sizes = [limits.largest_size(np.array([b.option])) for b in members]
        growth = [limits.largest_size(o) - size for o, size in zip(options, sizes, strict=True)]
        if limits.allows_size(number, sum(growth, np.zeros_like(largest))):
            continue
        for bin_, fitting, size in zip(members, options, sizes, strict=True):
            reserved = _least_size(bins, number, bin_, fitting)
            if reserved is None:
                over_limits.append(bin_)
                reserved = size
            limits.reserve(number, reserved - size)
            bin_.reserved = reserved
    return over_limits


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
