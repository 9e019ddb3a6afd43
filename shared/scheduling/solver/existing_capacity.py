"""Placing pods on what is there already, before anything is bought.

Room, ports, volumes and what hosts' rules count are kept for all places at once; pods of one size are placed by
counting, first place first. The order of places is Karpenter's: initialized first, then by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.rules.host_ports import ports_conflict
from shared.scheduling.solver.fit import most
from shared.scheduling.topology.host_counts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.solver.fit import Item
    from shared.scheduling.state.state_nodes import StateNodes
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]


class ExistingCapacity:
    """The places and what is on them, pods of this run included."""

    def __init__(self, state_nodes: StateNodes, resources: Sequence[str]) -> None:
        self.state_nodes = state_nodes
        size = len(state_nodes.nodes)
        self.available = np.array(
            [[p.available.get(r, 0) for r in resources] for p in state_nodes.nodes], np.int64
        ).reshape(size, len(resources))
        self.host_counts = HostCounts(size)
        self.ports: list[frozenset[HostPort]] = [p.ports for p in state_nodes.nodes]
        self.content: dict[int, list[tuple[Item, list[str]]]] = {}
        self._mounted_volumes: list[set[tuple[str, str]]] = [
            set(state_nodes.mounted_volumes.get(p.name, ())) for p in state_nodes.nodes
        ]
        self._limited = np.fromiter((bool(p.volume_limits) for p in state_nodes.nodes), np.bool_, size)

    def __len__(self) -> int:
        """How many places there are."""
        return len(self.state_nodes.nodes)

    @property
    def placed(self) -> dict[int, list[str]]:
        """The pods of this run by place."""
        return {place: [p for _, pods in content for p in pods] for place, content in self.content.items() if content}

    def evict(self, place: int, at: int, count: int) -> list[str]:
        """Takes the last pods of one item off a place again; what they kept others from stays so."""
        item, pods = self.content[place][at]
        gone = pods[len(pods) - count :]
        self.content[place][at] = (item, pods[: len(pods) - count])
        self.available[place] += item.requests * count
        return gone

    def capacity(self, feasibility: Feasibility, requests: Ints, near: tuple[int, ...] = ()) -> Ints:
        """How many pods of this kind and size each place would take."""
        if not feasibility.nodes.any():
            return np.zeros(len(self), np.int64)
        fits = most(requests, self.available)
        fits[~feasibility.nodes] = 0
        self.host_counts.restrict(fits, feasibility.host)
        self.host_counts.require(fits, near)
        if feasibility.ports or feasibility.mounted_volumes:
            for place in np.flatnonzero(fits).tolist():
                if ports_conflict(feasibility.ports, self.ports[place]):
                    fits[place] = 0
                elif feasibility.ports:
                    fits[place] = min(int(fits[place]), 1)
                if feasibility.mounted_volumes and self._limited[place] and not self._mountable(place, feasibility):
                    fits[place] = 0
        return fits

    def _mountable(self, place: int, feasibility: Feasibility) -> bool:
        limits = self.state_nodes.nodes[place].volume_limits
        after = self._mounted_volumes[place] | feasibility.mounted_volumes
        return all(sum(d == driver for d, _ in after) <= n for driver, n in limits.items())

    def place(self, item: Item, count: int, near: tuple[int, ...] = ()) -> int:
        """Places up to so many pods of an item; how many found a place. They leave the item."""
        fits = self.capacity(item.feasibility, item.requests, near)
        before = np.cumsum(fits) - fits
        take = np.clip(count - before, 0, fits)
        where = np.flatnonzero(take)
        self.host_counts.add(where, take[where], item.feasibility.host)
        placed = 0
        for place in where.tolist():
            n = int(take[place])
            self.content.setdefault(place, []).append((item, item.pods[placed : placed + n]))
            self.available[place] -= item.requests * n
            if item.feasibility.ports:
                self.ports[place] |= item.feasibility.ports
            if item.feasibility.mounted_volumes:
                self._mounted_volumes[place] |= item.feasibility.mounted_volumes
            placed += n
        del item.pods[:placed]
        return placed
