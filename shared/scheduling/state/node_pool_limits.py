"""What a pool may still buy.

A pool's limits count the capacity of its machines, whatever they turn out to be. So a claim counts with the largest of
its types, and where a limit is near, larger types are left out of the claim rather than pods out of the cluster.
Source: docs/facts/karpenter.md, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.quantity import NODES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.state_nodes import ClusterState

_UNLIMITED = 1 << 62
_FAR = 100
"""A limit is far while it leaves so many of the pool's largest machines; it is only counted then, not planned for."""


class Limits:
    """The room that limits leave, pool by pool; machines are taken from it as they are bought."""

    def __init__(self, launch_options: LaunchOptions, cluster_state: ClusterState) -> None:
        self._launch_options = launch_options
        self.version = 0
        shape = (len(launch_options.templates), len(launch_options.resources) + 1)
        self.left = np.full(shape, _UNLIMITED, np.int64)
        for i, pool in enumerate(launch_options.templates):
            used = cluster_state.usage.get(pool.node_pool, {})
            for name, amount in pool.limits.items():
                if name == NODES:
                    self.left[i, -1] = amount - cluster_state.node_counts.get(pool.node_pool, 0)
                elif name in launch_options.resources:
                    self.left[i, launch_options.resources.index(name)] = amount - used.get(name, 0)
        self._at_first = self.left.copy()
        self._size = np.hstack([launch_options.capacity, np.ones((len(launch_options.capacity), 1), np.int64)])
        self._counted = (self.left < _UNLIMITED).astype(np.int64)
        self._limited = [bool(c.any()) for c in self._counted]
        biggest = [self._size[p.options].max(0, initial=0) for p in launch_options.templates]
        self._margin = np.array(biggest, np.int64).reshape(shape) * _FAR
        self._near = np.zeros(len(launch_options.templates), np.bool_)
        for i in range(len(launch_options.templates)):
            self._near[i] = bool((self.left[i] < self._margin[i]).any())
        self._options: tuple[int, NDArray[np.bool_]] | None = None
        self._everything = np.ones(len(self._size), np.bool_)

    def options(self) -> NDArray[np.bool_]:
        """Which rows a pool may still buy one of."""
        if not self._near.any():
            return self._everything
        if self._options is None or self._options[0] != self.version:
            self._options = (
                self.version,
                np.logical_and.reduce(self._size <= self.left[self._launch_options.template_of], axis=1),
            )
        return self._options[1]

    def times(self, option: int) -> int:
        """How many of a row may be bought."""
        left, size = self.left[self._launch_options.template_of[option]], self._size[option]
        needed = size > 0
        return int((left[needed] // size[needed]).min())

    def take(self, option: int) -> None:
        """Counts one of a row as bought."""
        self._count(option, -1)

    def give(self, option: int) -> None:
        """Counts one of a row as not bought after all."""
        self._count(option, 1)

    def _count(self, option: int, sign: int) -> None:
        pool = int(self._launch_options.template_of[option])
        if self._limited[pool]:
            self.left[pool] += sign * self._size[option] * self._counted[pool]
            if self._near[pool]:
                self.version += 1
            elif (self.left[pool] < self._margin[pool]).any():
                self._near[pool] = True
                self.version += 1

    # --- machines whose row isn't settled yet ---

    def any(self) -> bool:
        """Whether any pool has limits."""
        return any(self._limited)

    def counted(self, pool: int) -> bool:
        """Whether the pool has limits at all."""
        return self._limited[pool]

    def affordable(self, pool: int, options: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows of the pool its limits leave room for."""
        found: NDArray[np.bool_] = (self._size[options] <= self.left[pool]).all(1)
        return found

    def affordable_size(self, pool: int, size: NDArray[np.int64]) -> bool:
        """Whether the limits leave room for a machine of this size."""
        return bool((size * self._counted[pool] <= self.left[pool]).all())

    def affordable_options(self, options: list[int]) -> bool:
        """Whether the limits leave room for one of each of these rows, together."""
        asked: dict[int, NDArray[np.int64]] = {}
        for option in options:
            pool = int(self._launch_options.template_of[option])
            asked[pool] = asked.get(pool, 0) + self._size[option]
        return all(self.affordable_size(pool, size) for pool, size in asked.items())

    def most(self, options: NDArray[np.int64]) -> NDArray[np.int64]:
        """The most that a machine counts for that may be any of these rows: resources, then nodes."""
        found: NDArray[np.int64] = self._size[options].max(0)
        return found

    def sizes(self, options: NDArray[np.int64], most: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows of one pool count for no more than that."""
        uncounted = self._counted[self._launch_options.template_of[options]] == 0
        found: NDArray[np.bool_] = ((self._size[options] <= most) | uncounted).all(1)
        return found

    def share(self, pool: int, options: NDArray[np.int64]) -> NDArray[np.float64]:
        """The largest share of what the pool's limits had room for at first that each of these rows takes."""
        counted = self._counted[pool].astype(np.bool_)
        room = np.maximum(self._at_first[pool][counted], 1).astype(np.float64)
        found: NDArray[np.float64] = (self._size[options][:, counted] / room).max(1)
        return found

    def reserve(self, pool: int, size: NDArray[np.int64]) -> None:
        """Counts a machine of this size as bought."""
        self.left[pool] -= size * self._counted[pool]
        self.version += 1

    def release(self, pool: int, size: NDArray[np.int64]) -> None:
        """Counts a machine of this size as not bought after all."""
        self.left[pool] += size * self._counted[pool]
        self.version += 1

    def limited(self, pool: int) -> bool:
        """Whether the pool has limits that are near."""
        return bool(self._near[pool])

    def limited_option(self, option: int) -> bool:
        """Whether the row's pool has limits that are near."""
        return bool(self._near[self._launch_options.template_of[option]])
