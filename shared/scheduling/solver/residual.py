"""The room that is left in machines bought already, and the pods that take it for nothing.

Lots come one after the other, machines are asked all at once. What a machine takes of one size is remembered and only
asked again of machines that something has gone to since: room never grows here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.solver.fit import most
from shared.scheduling.topology.host_counts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.packing import Bin, Lot
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.topology.feasibility import Feasibility
    from shared.scheduling.topology.host_counts import HostRules

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


class _Known:
    """What every machine takes of one size and kind, as of a point in the list of changes."""

    def __init__(self, fits: Ints, allowed: Bools, seen: int) -> None:
        self.fits = fits
        self.allowed = allowed
        self.seen = seen
        self.where = np.flatnonzero(fits)


class Spare:
    """The machines (bins) of a run with what room they have left. Call :meth:`close` when all lots were put."""

    def __init__(self, launch_options: LaunchOptions, bins: Sequence[Bin]) -> None:
        self._bins = bins
        self._options = np.array([b.option for b in bins])
        self._custom = np.array([b.custom for b in bins])
        self._offerings = np.stack([b.offerings for b in bins])
        self._used = np.stack([b.used for b in bins])
        self._room = launch_options.free[self._options] - self._used
        # A machine may not become dearer: what comes must bear its cheapest offering.
        self._offer = np.where(self._offerings, launch_options.price[self._options], np.inf).argmin(1)
        self._hosts = HostCounts(len(bins))
        ruled: dict[int, tuple[HostRules, dict[int, int]]] = {}
        for j, b in enumerate(bins):
            for item, pods in b.content:
                rules = item.feasibility.host
                if rules.match or rules.cap:
                    _, on = ruled.setdefault(id(rules), (rules, {}))
                    on[j] = on.get(j, 0) + len(pods)
        for rules, on in ruled.values():
            self._hosts.add(np.array(list(on)), np.array(list(on.values())), rules)
        self._allowed: dict[int, Bools] = {}
        self._known: dict[tuple[int, bytes], _Known] = {}
        self._changes: list[Ints] = []

    def put(self, lot: Lot) -> None:
        """Puts as many pods of the lot as there is room for, first machine first; they leave the lot."""
        known = self._fits(lot)
        where = known.where
        if not len(where):
            return
        fits = known.fits[where]
        rules = lot.feasibility.host
        if rules.match or rules.cap:
            self._hosts.restrict(fits, rules, where)
        after = np.cumsum(fits)
        take = np.minimum(fits, lot.count - (after - fits))
        some = np.flatnonzero(take > 0)
        if not len(some):
            return
        where, take = where[some], take[some]
        self._room[where] -= take[:, None] * lot.requests
        self._used[where] += take[:, None] * lot.requests
        self._offerings[where] &= lot.feasibility.offerings
        if rules.match or rules.cap:
            self._hosts.add(where, take, rules)
        self._changes.append(where)
        for j, n in zip(where.tolist(), take.tolist(), strict=True):
            self._bins[j].content.extend(lot.take(n))

    def close(self) -> None:
        """Writes what has changed back to the machines."""
        if self._changes:
            for j in np.unique(np.concatenate(self._changes)).tolist():
                self._bins[j].used = self._used[j]
                self._bins[j].offerings = self._offerings[j]

    def _fits(self, lot: Lot) -> _Known:
        feasibility = lot.feasibility
        key = (feasibility.mask_key, lot.requests.tobytes())
        known = self._known.get(key)
        if known is None:
            allowed = self._may_go(feasibility)
            known = self._known[key] = _Known(most(lot.requests, self._room) * allowed, allowed, len(self._changes))
        elif known.seen < len(self._changes):
            stale = np.concatenate(self._changes[known.seen :])
            known.fits[stale] = most(lot.requests, self._room[stale]) * known.allowed[stale]
            known.seen = len(self._changes)
            known.where = known.where[known.fits[known.where] > 0]
        return known

    def _may_go(self, feasibility: Feasibility) -> Bools:
        allowed = self._allowed.get(feasibility.mask_key)
        if allowed is None:
            asked = feasibility.custom[self._options]
            allowed = (
                feasibility.options[self._options]
                & ((asked == 0) | (asked == self._custom))
                & feasibility.offerings[self._offer]
            )
            self._allowed[feasibility.mask_key] = allowed
        return allowed
