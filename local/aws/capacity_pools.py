"""How many instances EC2 still has of each kind: unlimited, until a number is set.

What runs uses it up and gives it back when it is terminated, as on demand and spot pools do.
"""

from __future__ import annotations

import hashlib

Pool = tuple[str, str, str]
"""Capacity type ("spot" or "on-demand"), instance type, zone."""


class CapacityPools:
    """What is left, a pool; changed while the world runs to make capacity come and go."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._left: dict[Pool, int] = {}

    def set(self, capacity_type: str, instance_type: str, zone: str, instances: int | None) -> None:
        """Have so many instances left in a pool; None: unlimited again. "*" stands for any type or zone."""
        pool = (capacity_type, instance_type, zone)
        if instances is None:
            self._left.pop(pool, None)
        else:
            self._left[pool] = instances

    def left(self, pool: Pool) -> int | None:
        """How many are left; None: unlimited. The most specific number counts."""
        key = self._key(pool)
        return None if key is None else self._left[key]

    def take(self, pool: Pool, instances: int) -> int:
        """Take up to so many from a pool; returns how many there were."""
        key = self._key(pool)
        if key is None:
            return instances
        taken = min(instances, self._left[key])
        self._left[key] -= taken
        return taken

    def give_back(self, pool: Pool) -> None:
        """Return one terminated instance to its pool. A pool that was emptied on purpose (zero) stays empty."""
        key = self._key(pool)
        if key is not None and self._left[key] > 0:
            self._left[key] += 1

    def depth(self, pool: Pool) -> float:
        """How deep a pool is said to be, in [0, 1): what spot allocation weighs against the price."""
        digest = hashlib.sha256(f"{self._seed}:{':'.join(pool)}".encode()).digest()
        return int.from_bytes(digest[:4], "big") / 2**32

    def _key(self, pool: Pool) -> Pool | None:
        capacity_type, instance_type, zone = pool
        for key in (
            pool,
            (capacity_type, instance_type, "*"),
            (capacity_type, "*", zone),
            (capacity_type, "*", "*"),
        ):
            if key in self._left:
                return key
        return None
