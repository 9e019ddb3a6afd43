"""The least that machines for some pods could cost: a bound that no placing can beat, however clever.

Weak duality of the packing problem relaxed to fractions of machines: give each resource a price such that no machine is
worth more than it costs; then what the pods ask for is worth no more than any machines that hold it cost. Many such
prices are tried, for cpu and memory together and for each resource alone, and the best is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared.api.quantity import CPU, MEMORY, PODS
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.api.quantity import Resources
    from shared.cloud_provider import ResolvedNodePools
    from shared.snapshot import Snapshot

_STEPS = 65


@dataclass(frozen=True)
class Bound:
    """Prices of resources, a row a try: USD per hour of one unit each."""

    resources: tuple[str, ...]
    prices: NDArray[np.float64]

    def of(self, asked: Resources) -> float:
        """USD per hour that any machines for this much cost at least."""
        if not len(self.prices):
            return 0.0
        amounts = np.array([asked.get(r, 0) for r in self.resources], np.float64)
        return float((self.prices @ amounts).max())


def bound(snapshot: Snapshot, resolved_pools: ResolvedNodePools, asked: set[str]) -> Bound:
    """The bound for machines that the pools may buy; ``asked`` are the resources that pods ask for."""
    resources = tuple(sorted(asked | {CPU, MEMORY, PODS}))
    launch_options = build_launch_options(
        snapshot.node_pools,
        resolved_pools.instance_types,
        daemon_set_pods(snapshot.daemon_sets),
        resolved_pools.not_ready,
        resources,
    )
    if not len(launch_options.price):
        return Bound(resources, np.zeros((0, len(resources))))
    cost = launch_options.price.min(1)
    free = launch_options.free[:, [launch_options.resources.index(r) for r in resources]].astype(np.float64)
    directions = [np.eye(len(resources))[i] for i in range(len(resources))]
    cpu, memory = resources.index(CPU), resources.index(MEMORY)
    # one milli-cpu beside so much memory as machines have of it on average: the range of prices that can matter
    beside = float(free[:, memory].sum() / max(free[:, cpu].sum(), 1))
    for share in np.linspace(0.02, 0.98, _STEPS):
        direction = np.zeros(len(resources))
        direction[cpu], direction[memory] = share, (1 - share) / beside
        directions.append(direction)
    tried = np.array(directions)
    worth = free @ tried.T
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(worth > 0, cost[:, None] / worth, np.inf).min(0)
    usable = np.isfinite(scale)
    return Bound(resources, tried[usable] * scale[usable, None])
