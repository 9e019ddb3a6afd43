"""What a pool may still buy.

A pool's limits count the capacity of its machines, whatever they turn out to be. So a claim counts with the largest of
its types, and where a limit is near, larger types are left out of the claim rather than pods out of the cluster.
Source: reference/karpenter.md, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.quantity import NODES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.scheduling.nodes import Inventory
    from shared.scheduling.pools import Market

_UNLIMITED = 1 << 62


class Limits:
    """The room that limits leave, pool by pool; machines are taken from it as they are bought."""

    def __init__(self, market: Market, inventory: Inventory) -> None:
        self._market = market
        self.version = 0
        shape = (len(market.pools), len(market.resources) + 1)
        self.left = np.full(shape, _UNLIMITED, np.int64)
        for i, pool in enumerate(market.pools):
            used = inventory.used.get(pool.name, {})
            for name, amount in pool.limits.items():
                if name == NODES:
                    self.left[i, -1] = amount - inventory.counts.get(pool.name, 0)
                elif name in market.resources:
                    self.left[i, market.resources.index(name)] = amount - used.get(name, 0)
        self._size = np.hstack([market.capacity, np.ones((len(market.capacity), 1), np.int64)])
        self._limited: NDArray[np.bool_] = np.logical_or.reduce(self.left < _UNLIMITED, axis=1)
        self._everything = np.ones(len(self._size), np.bool_)

    def rows(self) -> NDArray[np.bool_]:
        """Which rows a pool may still buy one of."""
        if not self._limited.any():
            return self._everything
        found: NDArray[np.bool_] = (self._size <= self.left[self._market.pool_of]).all(1)
        return found

    def times(self, row: int) -> int:
        """How many of a row may be bought."""
        left, size = self.left[self._market.pool_of[row]], self._size[row]
        needed = size > 0
        return int((left[needed] // size[needed]).min())

    def take(self, row: int) -> None:
        """Counts one of a row as bought."""
        pool = self._market.pool_of[row]
        if self._limited[pool]:
            self.version += 1
            limited = self.left[pool] < _UNLIMITED
            self.left[pool][limited] -= self._size[row][limited]

    def give(self, row: int) -> None:
        """Counts one of a row as not bought after all."""
        pool = self._market.pool_of[row]
        if self._limited[pool]:
            self.version += 1
            limited = self.left[pool] < _UNLIMITED
            self.left[pool][limited] += self._size[row][limited]

    def limited_row(self, row: int) -> bool:
        """Whether the row's pool has limits at all."""
        return bool(self._limited[self._market.pool_of[row]])

    def limited_rows(self) -> NDArray[np.bool_]:
        """Which rows are of pools with limits."""
        found: NDArray[np.bool_] = self._limited[self._market.pool_of]
        return found

    def limited(self, pool: int) -> bool:
        """Whether the pool has limits at all."""
        return bool(self._limited[pool])
