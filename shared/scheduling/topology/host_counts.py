"""Rules about hosts, counted for many hosts at once.

A rule says how many pods that a selector matches may share a host with a pod that holds the rule. Anti-affinity is the
rule with room for the pod itself alone, a spread over hosts the rule with room for maxSkew, a port that of one pod; all
are counted in the same way, and all are symmetric: a pod may not come to a host whose pods bear no more of its like.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


NO_CAP = 1 << 30


@dataclass(frozen=True, eq=False)
class HostRules:
    """What a pod counts for, and bears, on one host: term to number of pods."""

    match: Mapping[int, int] = field(default_factory=dict)
    cap: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def key(self) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """A hashable form."""
        return tuple(sorted(self.match.items())), tuple(sorted(self.cap.items()))


class HostCounts:
    """For each host, how many pods of each rule it has, and how many its pods bear."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.present: dict[int, Ints] = {}
        self.caps: dict[int, Ints] = {}

    def restrict(self, fits: Ints, rules: HostRules, where: Ints | None = None) -> None:
        """Lowers how many pods with these rules each host would take, in place; ``where``: of these hosts alone."""
        at = slice(None) if where is None else where
        for term, weight in rules.match.items():
            caps = self.caps.get(term)
            own = rules.cap.get(term, NO_CAP)
            if caps is None and own == NO_CAP:
                continue
            limit = own if caps is None else np.minimum(caps[at], own)
            present = self.present.get(term)
            left = np.maximum(limit if present is None else limit - present[at], 0)
            np.minimum(fits, left if weight == 1 else left // weight, out=fits)
        for term, cap in rules.cap.items():
            present = self.present.get(term)
            if term not in rules.match and present is not None:
                fits[present[at] > cap] = 0

    def require(self, fits: Ints, near: tuple[int, ...]) -> None:
        """Leaves only the hosts that have a pod of each of these rules, in place."""
        for term in near:
            present = self.present.get(term)
            if present is None:
                fits[:] = 0
            else:
                fits[present <= 0] = 0

    def add(self, hosts: Ints, counts: Ints, rules: HostRules) -> None:
        """Counts so many pods with these rules on these hosts."""
        for term, weight in rules.match.items():
            present = self.present.get(term)
            if present is None:
                present = self.present[term] = np.zeros(self.size, np.int64)
            present[hosts] += counts * weight
        for term, cap in rules.cap.items():
            caps = self.caps.get(term)
            if caps is None:
                caps = self.caps[term] = np.full(self.size, NO_CAP, np.int64)
            caps[hosts] = np.minimum(caps[hosts], cap)

    def count(self, host: int, match: Mapping[int, int], cap: Mapping[int, int]) -> None:
        """Counts one pod on one host."""
        self.add(np.array([host]), np.ones(1, np.int64), HostRules(match, cap))
