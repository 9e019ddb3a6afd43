"""The capacity of existing nodes, and the pods of this run that are placed there.

Available resources, ports, volumes and host rules are kept for all nodes at once. Pods of one size are placed by
counting, first node first. The order of nodes is Karpenter's: initialized nodes first, then by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.rules.attached_volumes import ATTACHED_VOLUMES, NO_LIMIT
from shared.scheduling.rules.host_ports import ports_conflict
from shared.scheduling.solver.fit import pod_count
from shared.scheduling.topology.domain_counts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.solver.bins import Content
    from shared.scheduling.solver.fit import Item
    from shared.scheduling.state.state_nodes import StateNodes
    from shared.scheduling.topology.feasibility import Feasibility

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]


class ExistingCapacity:
    """All existing nodes, by number, with the pods of this run in ``content``."""

    def __init__(self, state_nodes: StateNodes, resources: Sequence[str]) -> None:
        self.state_nodes = state_nodes
        count = len(state_nodes.nodes)
        available = [[node.available.get(r, 0) for r in resources] for node in state_nodes.nodes]
        self._available = np.array(available, np.int64).reshape(count, len(resources))
        if ATTACHED_VOLUMES in resources:
            self._available[:, resources.index(ATTACHED_VOLUMES)] = NO_LIMIT  # counted by name, in _may_mount
        self.host_counts = HostCounts(count)
        self._ports: list[frozenset[HostPort]] = [node.ports for node in state_nodes.nodes]
        self.content: dict[int, Content] = {}
        self._mounted_volumes: list[set[tuple[str, str]]] = [
            set(state_nodes.mounted_volumes.get(node.name, ())) for node in state_nodes.nodes
        ]
        self._has_volume_limits = np.fromiter((bool(n.volume_limits) for n in state_nodes.nodes), np.bool_, count)

    def __len__(self) -> int:
        """How many existing nodes there are."""
        return len(self.state_nodes.nodes)

    @property
    def placed(self) -> dict[int, list[str]]:
        """The pods of this run by node."""
        return {node: [p for _, pods in content for p in pods] for node, content in self.content.items() if content}

    def available(self, node: int) -> Ints:
        """What the node has left, by resource."""
        left: Ints = self._available[node].copy()
        return left

    def free(self, nodes: Bools) -> Ints:
        """What these nodes have left: nodes x resources."""
        left: Ints = self._available[nodes]
        return left

    def remove(self, node: int, at: int, count: int) -> list[str]:
        """Removes the last pods of one item from a node; its host rules still count there."""
        item, pods = self.content[node][at]
        removed = pods[len(pods) - count :]
        self.content[node][at] = (item, pods[: len(pods) - count])
        self._available[node] += item.requests * count
        return removed

    def capacity(self, feasibility: Feasibility, requests: Ints, host_affinity: tuple[int, ...] = ()) -> Ints:
        """How many pods of this feasibility and size each node takes; ``host_affinity``: terms it must have pods of."""
        if not feasibility.nodes.any():
            return np.zeros(len(self), np.int64)
        fits = pod_count(requests, self._available)
        fits[~feasibility.nodes] = 0
        self.host_counts.restrict(fits, feasibility.host)
        self.host_counts.require(fits, host_affinity)
        if feasibility.ports or feasibility.mounted_volumes:
            for node in np.flatnonzero(fits).tolist():
                if ports_conflict(feasibility.ports, self._ports[node]) or not self._may_mount(node, feasibility):
                    fits[node] = 0
                elif feasibility.ports:
                    fits[node] = min(int(fits[node]), 1)
        return fits

    def _may_mount(self, node: int, feasibility: Feasibility) -> bool:
        """Whether the node's limits of the pod's volumes' drivers allow these volumes."""
        if not feasibility.mounted_volumes or not self._has_volume_limits[node]:
            return True
        limits = self.state_nodes.nodes[node].volume_limits
        mounted = self._mounted_volumes[node] | feasibility.mounted_volumes
        drivers = {driver for driver, _ in feasibility.mounted_volumes}
        return all(
            sum(d == driver for d, _ in mounted) <= limit for driver, limit in limits.items() if driver in drivers
        )

    def place(self, item: Item, count: int, host_affinity: tuple[int, ...] = ()) -> int:
        """Places up to that many pods of an item; how many were placed. They leave the item."""
        fits = self.capacity(item.feasibility, item.requests, host_affinity)
        counts = np.clip(count - (np.cumsum(fits) - fits), 0, fits)
        nodes = np.flatnonzero(counts)
        self.host_counts.add(nodes, counts[nodes], item.feasibility.host)
        placed = 0
        for node in nodes.tolist():
            n = int(counts[node])
            self._take(node, item, item.pods[placed : placed + n])
            placed += n
        del item.pods[:placed]
        return placed

    def place_on(self, node: int, item: Item) -> None:
        """Places all pods of an item on one node, whether or not they fit; they leave the item."""
        self.host_counts.add(np.array([node]), np.array([len(item.pods)]), item.feasibility.host)
        self._take(node, item, item.pods[:])
        item.pods.clear()

    def _take(self, node: int, item: Item, pods: list[str]) -> None:
        self.content.setdefault(node, []).append((item, pods))
        self._available[node] -= item.requests * len(pods)
        if item.feasibility.ports:
            self._ports[node] |= item.feasibility.ports
        if item.feasibility.mounted_volumes:
            self._mounted_volumes[node] |= item.feasibility.mounted_volumes
