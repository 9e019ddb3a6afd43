"""A lower bound of what pods cost, whatever machines hold them: local search skips what can't become cheaper.

A machine's price is shared among its pods by what they request of a mix of resources (a price per unit, as in the dual
of the linear relaxation). No pod can pay less than its cheapest launch option asks for a unit, so these shares add up
to no more than the machines' price; the best of a few mixes is the bound. And some machine must hold the largest pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_SHARES_OF_CPU = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Mixes of cpu and memory, by cpu's share, beside each resource alone."""


class PriceBound:
    """Bounds for pods that may be launched on some of the options."""

    def __init__(self, launch_options: LaunchOptions, options: Bools) -> None:
        self.launch_options = launch_options
        self._options = options
        self._mixes = _mixes(launch_options)
        self._size = launch_options.free @ self._mixes.T
        self._by_mask: dict[int, tuple[Floats, Ints, Floats]] = {}
        self._known: dict[tuple[int, bytes], tuple[Floats, float]] = {}

    def of(self, feasibility: Feasibility, requests: Ints) -> tuple[Floats, float]:
        """What one pod pays at least, by mix of resources; and the price of the cheapest machine that holds it."""
        key = (feasibility.mask_key, requests.tobytes())
        bound = self._known.get(key)
        if bound is None:
            per_unit, free, price = self._cheapest(feasibility)
            holding = (free >= requests).all(1)
            least = float(price[holding.argmax()]) if holding.any() else np.inf
            bound = self._known[key] = ((self._mixes @ requests) * per_unit, least)
        return bound

    def _cheapest(self, feasibility: Feasibility) -> tuple[Floats, Ints, Floats]:
        """The least price per unit of each mix, and the options with their prices, cheapest first."""
        known = self._by_mask.get(feasibility.mask_key)
        if known is None:
            options = np.flatnonzero(feasibility.options & self._options)
            price = self.launch_options.price[options][:, feasibility.offerings].min(1, initial=np.inf)
            options, price = options[np.isfinite(price)], price[np.isfinite(price)]
            order = np.argsort(price, kind="stable")
            size = np.maximum(self._size[options], 1e-12)
            per_unit = (price[:, None] / size).min(0, initial=np.inf) if len(options) else np.zeros(len(self._mixes))
            known = (per_unit, self.launch_options.free[options[order]], price[order])
            self._by_mask[feasibility.mask_key] = known
        return known


def _mixes(launch_options: LaunchOptions) -> Floats:
    """The mixes of resources, one a row, scaled to the largest machine."""
    largest = np.maximum(launch_options.free.max(0, initial=1), 1).astype(np.float64)
    alone: Floats = np.eye(len(largest)) / largest
    names = launch_options.resources
    if "cpu" not in names or "memory" not in names:
        return alone
    cpu, memory = alone[names.index("cpu")], alone[names.index("memory")]
    return np.vstack([alone, *[share * cpu + (1 - share) * memory for share in _SHARES_OF_CPU]])
