"""The residual capacity of open bins, and the pods that use it for nothing.

Lots are packed one after the other, into all bins at once. How many pods of a size and feasibility each bin takes is
remembered, and computed again only for bins that have changed, as residual capacity never grows here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import pod_count
from shared.scheduling.topology.domain_counts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bin
    from shared.scheduling.solver.fit import Lot
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.topology.domain_counts import HostRules
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


class _Fits:
    """How many pods of one size and feasibility each bin takes, after a number of changes."""

    def __init__(self, counts: Ints, allowed: Bools, changes: int) -> None:
        self.counts = counts
        self.allowed = allowed
        self.changes = changes
        self.bins = np.flatnonzero(counts)


class Residual:
    """The bins of a plan with their residual capacity. Call :meth:`close` after the last lot."""

    def __init__(self, launch_options: LaunchOptions, bins: Sequence[Bin]) -> None:
        self._bins = bins
        self._options = np.array([b.option for b in bins])
        self._custom = np.array([b.custom for b in bins])
        self._offerings = np.stack([b.offerings for b in bins])
        self._used = np.stack([b.used for b in bins])
        self._free = launch_options.free[self._options] - self._used
        # a bin may not become more expensive: pods must be allowed in its cheapest offering
        self._cheapest_offering = np.where(self._offerings, launch_options.price[self._options], np.inf).argmin(1)
        self._hosts = _host_counts(bins)
        self._allowed: dict[int, Bools] = {}
        self._fits_by_lot: dict[tuple[int, bytes], _Fits] = {}
        self._changes: list[Ints] = []

    def fill(self, lot: Lot) -> None:
        """Packs as many pods of the lot as fit, first bin first; they leave the lot."""
        fits = self._fits(lot)
        bins = fits.bins
        if not len(bins):
            return
        room = fits.counts[bins]
        host_rules = lot.feasibility.host
        if host_rules.match or host_rules.own:
            self._hosts.restrict(room, host_rules, bins)
        counts = np.minimum(room, lot.count - (np.cumsum(room) - room))
        filled = np.flatnonzero(counts > 0)
        if not len(filled):
            return
        bins, counts = bins[filled], counts[filled]
        self._free[bins] -= counts[:, None] * lot.requests
        self._used[bins] += counts[:, None] * lot.requests
        self._offerings[bins] &= lot.feasibility.offerings
        if host_rules.match or host_rules.cap:
            self._hosts.add(bins, counts, host_rules)
        self._changes.append(bins)
        for j, n in zip(bins.tolist(), counts.tolist(), strict=True):
            self._bins[j].content.extend(lot.take(n))

    def close(self) -> None:
        """Writes the changes to the bins."""
        if self._changes:
            for j in np.unique(np.concatenate(self._changes)).tolist():
                self._bins[j].used = self._used[j]
                self._bins[j].offerings = self._offerings[j]

    def _fits(self, lot: Lot) -> _Fits:
        feasibility = lot.feasibility
        key = (feasibility.mask_key, lot.requests.tobytes())
        fits = self._fits_by_lot.get(key)
        if fits is None:
            allowed = self._allowed_bins(feasibility)
            counts = pod_count(lot.requests, self._free) * allowed
            fits = self._fits_by_lot[key] = _Fits(counts, allowed, len(self._changes))
        elif fits.changes < len(self._changes):
            changed = np.concatenate(self._changes[fits.changes :])
            fits.counts[changed] = pod_count(lot.requests, self._free[changed]) * fits.allowed[changed]
            fits.changes = len(self._changes)
            fits.bins = fits.bins[fits.counts[fits.bins] > 0]
        return fits

    def _allowed_bins(self, feasibility: Feasibility) -> Bools:
        allowed = self._allowed.get(feasibility.mask_key)
        if allowed is None:
            own = feasibility.custom[self._options]
            allowed = feasibility.options[self._options] & ((own == 0) | (own == self._custom))
            allowed &= feasibility.offerings[self._cheapest_offering]
            self._allowed[feasibility.mask_key] = allowed
        return allowed


def _host_counts(bins: Sequence[Bin]) -> HostCounts:
    """The host rules of the pods that the bins hold."""
    hosts = HostCounts(len(bins))
    counts_by_rules: dict[int, tuple[HostRules, dict[int, int]]] = {}
    for j, bin_ in enumerate(bins):
        for item, pods in bin_.content:
            rules = item.feasibility.host
            if rules.match or rules.cap:
                _, counts = counts_by_rules.setdefault(id(rules), (rules, {}))
                counts[j] = counts.get(j, 0) + len(pods)
    for rules, counts in counts_by_rules.values():
        hosts.add(np.array(list(counts)), np.array(list(counts.values())), rules)
    return hosts
