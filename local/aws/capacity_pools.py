"""EC2's capacity pools: unlimited until a number of instances is set.

A launched instance takes from its pool and returns to it when it is terminated.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

Pool = tuple[str, str, str]
"""Capacity type ("spot" or "on-demand"), instance type, zone."""


class CapacityPools:
    """The remaining capacity of each pool; tests change it while the world runs."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._remaining: dict[Pool, int] = {}
        self._errors: dict[Pool, tuple[str, str]] = {}

    def set(self, capacity_type: str, instance_type: str, zone: str, instances: int | None) -> None:
        """Set the remaining instances of a pool; None: unlimited. "*" stands for any type or zone."""
        pool = (capacity_type, instance_type, zone)
        if instances is None:
            self._remaining.pop(pool, None)
        else:
            self._remaining[pool] = instances

    def remaining(self, pool: Pool) -> int | None:
        """The remaining instances; None: unlimited. The most specific setting applies."""
        key = self._key(pool)
        return None if key is None else self._remaining[key]

    def take(self, pool: Pool, instances: int) -> int:
        """Take up to that many instances from a pool; returns how many were available."""
        key = self._key(pool)
        if key is None:
            return instances
        taken = min(instances, self._remaining[key])
        self._remaining[key] -= taken
        return taken

    def release(self, pool: Pool) -> None:
        """Return one terminated instance to its pool. A pool with no capacity left stays empty."""
        key = self._key(pool)
        if key is not None and self._remaining[key] > 0:
            self._remaining[key] += 1

    def fail(self, capacity_type: str, instance_type: str, zone: str, error: tuple[str, str] | None) -> None:
        """Answer launches from a pool with an error (code, message) until it is set to None; "*" as for :meth:`set`."""
        pool = (capacity_type, instance_type, zone)
        if error is None:
            self._errors.pop(pool, None)
        else:
            self._errors[pool] = error

    def error(self, pool: Pool) -> tuple[str, str] | None:
        """The error of a launch from the pool (code and message), if one was set."""
        key = _most_specific(pool, self._errors)
        return None if key is None else self._errors[key]

    def depth(self, pool: Pool) -> float:
        """The pool's depth in [0, 1), which spot allocation strategies weigh against the price."""
        digest = hashlib.sha256(f"{self._seed}:{':'.join(pool)}".encode()).digest()
        return int.from_bytes(digest[:4], "big") / 2**32

    def _key(self, pool: Pool) -> Pool | None:
        return _most_specific(pool, self._remaining)


def _most_specific(pool: Pool, among: Container[Pool]) -> Pool | None:
    """The most specific of the keys that stand for the pool."""
    capacity_type, instance_type, zone = pool
    keys = (pool, (capacity_type, instance_type, "*"), (capacity_type, "*", zone), (capacity_type, "*", "*"))
    return next((key for key in keys if key in among), None)
