"""Moves each planned node to the cheapest launch option that holds it, and keeps NodePool limits.

Runs between packing and the NodeClaims: what a claim may list depends on the limits kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import holds, holds_each
from shared.scheduling.solver.packing import fitting, prices
from shared.scheduling.state.min_values import satisfies_min_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.packing import Bin, Packer
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_TINY = 1e-12
_AT_ONCE = 1024
"""So many machines are held against all rows at once; bounds the memory that takes."""


def settle(packer: Packer, *, strict: bool) -> None:
    """Moves every machine to the cheapest row that holds what is in it, of any pool of the same weight."""
    launch_options, limits = packer.launch_options, packer.limits
    bins = [b for b in packer.bins if b.reserved is None]
    special = [limits.is_near(i) or bool(strict and p.min_values) for i, p in enumerate(launch_options.templates)]
    cheapest = _cheapest(
        launch_options, bins, [p for p, s in zip(launch_options.templates, special, strict=True) if not s]
    )
    picky = [(i, p) for i, (p, s) in enumerate(zip(launch_options.templates, special, strict=True)) if s]
    for at, (bin_, price_now) in enumerate(zip(bins, prices(launch_options, bins).tolist(), strict=True)):
        best = (price_now, bin_.option)
        if cheapest[at][0] < best[0] - _TINY:
            best = cheapest[at]
        weight = launch_options.templates[launch_options.template_of[bin_.option]].weight
        for i, pool in picky:
            if pool.weight != weight:
                continue
            options = fitting(launch_options, pool, bin_.feasibilities, bin_.used, bin_.offerings, bin_.custom)
            if not len(options) or (strict and not satisfies_min_values(launch_options, pool, options, bin_.offerings)):
                continue
            if limits.is_near(i):
                same = i == launch_options.template_of[bin_.option]
                options = (
                    options[holds(-launch_options.capacity[options], -launch_options.capacity[bin_.option])]
                    if same
                    else options[:0]
                )
                if not len(options):
                    continue
            price = launch_options.price[options][:, bin_.offerings].min(1)
            first = int(np.lexsort((options, price))[0])
            if price[first] < best[0] - _TINY:
                best = (float(price[first]), int(options[first]))
        if best[1] != bin_.option:
            limits.remove(bin_.option)
            bin_.option = best[1]
            limits.add(bin_.option)


def _cheapest(
    launch_options: LaunchOptions, bins: Sequence[Bin], templates: Sequence[NodeClaimTemplate]
) -> list[tuple[float, int]]:
    """The price and row of the cheapest of these pools' rows that holds each bin; inf where none does."""
    found = [(np.inf, -1)] * len(bins)
    for pool in templates:
        weighty = [
            i
            for i, b in enumerate(bins)
            if launch_options.templates[launch_options.template_of[b.option]].weight == pool.weight
        ]
        for members in bins_alike(weighty, bins).values():
            first = bins[members[0]]
            options, price = by_price(launch_options, pool, first)
            if not len(options):
                continue
            held = holds_each(launch_options.free[options], np.stack([bins[i].used for i in members]))
            at = held.argmax(1)
            for i, j, any_ in zip(members, at.tolist(), held[np.arange(len(at)), at].tolist(), strict=True):
                if any_ and price[j] < found[i][0] - _TINY:
                    found[i] = (float(price[j]), int(options[j]))
    return found


def bins_alike(members: Iterable[int], bins: Sequence[Bin]) -> dict[object, list[int]]:
    """The bins that may come from the same rows in the same offerings, by number."""
    found: dict[object, list[int]] = {}
    for i in members:
        b = bins[i]
        found.setdefault((b.masks, b.offerings.tobytes(), b.custom), []).append(i)
    return {(key, n): some for key, many in found.items() for n, some in enumerate(_slices(many))}


def _slices(members: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(members), _AT_ONCE):
        yield members[start : start + _AT_ONCE]


def by_price(launch_options: LaunchOptions, pool: NodeClaimTemplate, bin_: Bin) -> tuple[Ints, Floats]:
    """The pool's rows that what is in the bin may go to, whatever its size, cheapest first; and their prices."""
    options = fitting(launch_options, pool, bin_.feasibilities, np.zeros_like(bin_.used), bin_.offerings, bin_.custom)
    price = launch_options.price[options][:, bin_.offerings].min(1, initial=np.inf)
    order = np.argsort(price, kind="stable")
    return options[order], price[order]


def keep_limits(packer: Packer) -> list[Bin]:
    """Bounds what the claims of limited pools may be, where all that fit would pass a limit.

    A claim that can't be had so, as too few types are left for its pool's minValues, comes back.
    """
    launch_options, limits = packer.launch_options, packer.limits
    broken: list[Bin] = []
    for number, pool in enumerate(launch_options.templates):
        mine = [b for b in packer.bins if b.reserved is None and launch_options.template_of[b.option] == number]
        if not mine or not limits.has_limits(number):
            continue
        most = limits.largest_size(np.arange(pool.options.start, pool.options.stop))
        if limits.allows_size(number, most * len(mine)):
            continue
        options = [fitting(launch_options, pool, b.feasibilities, b.used, b.offerings, b.custom) for b in mine]
        sizes = [limits.largest_size(np.array([b.option])) for b in mine]
        more = sum((limits.largest_size(r) - size for r, size in zip(options, sizes, strict=True)), np.zeros_like(most))
        if limits.allows_size(number, more):
            continue
        for bin_, fit, size in zip(mine, options, sizes, strict=True):
            bound = _bound(packer, number, bin_, fit)
            if bound is None:
                broken.append(bin_)
                bound = size
            limits.reserve(number, bound - size)
            bin_.reserved = bound
    return broken


def loosen(packer: Packer) -> None:
    """Takes the bounds off again, so that machines may change; but where minValues need them."""
    launch_options, limits = packer.launch_options, packer.limits
    for bin_ in packer.bins:
        number = int(launch_options.template_of[bin_.option])
        if bin_.reserved is not None and not (packer.strict and launch_options.templates[number].min_values):
            limits.release(number, bin_.reserved)
            limits.add(bin_.option)
            bin_.reserved = None


def _bound(packer: Packer, number: int, bin_: Bin, options: Ints) -> Ints | None:
    """The least that a machine must be allowed to be so that its claim keeps its pool's minValues."""
    launch_options, limits = packer.launch_options, packer.limits
    pool = launch_options.templates[number]
    size = limits.largest_size(np.array([bin_.option]))
    if not packer.strict or not pool.min_values:
        return size
    larger = options[np.argsort(limits.share(number, options), kind="stable")]
    for option in (bin_.option, *larger.tolist()):
        most = limits.largest_size(np.array([bin_.option, option]))
        if limits.allows_size(number, most - size) and satisfies_min_values(
            launch_options, pool, options[limits.within_size(options, most)], bin_.offerings
        ):
            return most
    return None
