"""A lower bound for the cost of nodes that can run some pods: no scheduling can cost less.

It follows from weak duality of the packing problem relaxed to fractions of nodes. Give each resource a price such that
no node's resources are worth more than the node costs. Then the pods' requests are worth no more than any nodes that
run them cost. Many such prices are tried, for combinations of cpu and memory and for each resource alone, and the
highest bound is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.quantity import CPU, MEMORY, PODS
from shared.base.struct import Struct
from shared.scheduling.state.daemonsets import daemon_set_pods
from shared.scheduling.state.launch_options import build_launch_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.api.quantity import Resources
    from shared.cloud_provider import ResolvedNodePools
    from shared.snapshot import Snapshot

_STEPS = 65


class LowerBound(Struct):
    """Prices of resources, USD per hour of one unit; a row for each try."""

    resources: tuple[str, ...]
    prices: NDArray[np.float64]

    def of(self, requests: Resources) -> float:
        """USD per hour that nodes for these requests cost at least."""
        if not len(self.prices):
            return 0.0
        amounts = np.array([requests.get(r, 0) for r in self.resources], np.float64)
        return float((self.prices @ amounts).max())


def lower_bound(snapshot: Snapshot, resolved_pools: ResolvedNodePools, requested: set[str]) -> LowerBound:
    """The bound for nodes that the NodePools can launch; ``requested`` are the resources that pods request."""
    resources = tuple(sorted(requested | {CPU, MEMORY, PODS}))
    launch_options = build_launch_options(
        snapshot.node_pools,
        resolved_pools.instance_types,
        daemon_set_pods(snapshot),
        resolved_pools.not_ready,
        resources,
    )
    if not len(launch_options.price):
        return LowerBound(resources, np.zeros((0, len(resources))))
    cost = launch_options.price.min(1)
    free = launch_options.free[:, [launch_options.resources.index(r) for r in resources]].astype(np.float64)
    directions = [np.eye(len(resources))[i] for i in range(len(resources))]
    cpu, memory = resources.index(CPU), resources.index(MEMORY)
    # the average memory of a node for one milli-cpu: it scales the range of prices that can matter
    memory_per_cpu = float(free[:, memory].sum() / max(free[:, cpu].sum(), 1))
    for share in np.linspace(0.02, 0.98, _STEPS):
        direction = np.zeros(len(resources))
        direction[cpu], direction[memory] = share, (1 - share) / memory_per_cpu
        directions.append(direction)
    candidates = np.array(directions)
    worth = free @ candidates.T
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(worth > 0, cost[:, None] / worth, np.inf).min(0)
    usable = np.isfinite(scale)
    return LowerBound(resources, candidates[usable] * scale[usable, None])
