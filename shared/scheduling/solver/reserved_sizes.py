"""Reserved sizes: how large a bin's NodeClaim may be where NodePool limits are near or minValues need larger nodes.

Set after packing and before the NodeClaims: instance types that a limit doesn't allow are left out of the NodeClaim,
rather than pods out of the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.bins import fitting_options
from shared.scheduling.state.min_values import satisfies_min_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bin, Bins

    Ints = NDArray[np.int64]


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
