"""Rules about hosts, counted for many hosts at once.

A rule limits how many pods that a term matches may run on the host of a pod with the rule: anti-affinity allows the pod
itself only, a spread over hosts maxSkew pods, a host port one. All rules are symmetric: a pod may not go to a host
where a running pod's rule would be violated.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NO_CAP = 1 << 30
"""More pods than any host or domain takes."""


class HostRules(Struct, eq=False, dict=True):
    """A pod's part in rules about hosts, by term.

    ``match``: how many pods it counts for. ``cap``: how many pods of the term its host may have.
    """

    match: Mapping[int, int] = {}
    cap: Mapping[int, int] = {}

    @cached_property
    def key(self) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """A hashable form: equal for equal rules."""
        return tuple(sorted(self.match.items())), tuple(sorted(self.cap.items()))


class HostCounts:
    """For each host, how many pods of each term it has (``present``), and how many its pods allow (``caps``)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.present: dict[int, Ints] = {}
        self.caps: dict[int, Ints] = {}

    def restrict(self, fits: Ints, rules: HostRules, hosts: Ints | None = None) -> None:
        """Lowers, in place, how many pods with these rules each host takes; ``hosts``: ``fits`` is of these only."""
        at = slice(None) if hosts is None else hosts
        for term, weight in rules.match.items():
            caps = self.caps.get(term)
            own_cap = rules.cap.get(term, NO_CAP)
            if caps is None and own_cap == NO_CAP:
                continue
            limit = own_cap if caps is None else np.minimum(caps[at], own_cap)
            present = self.present.get(term)
            left = np.maximum(limit if present is None else limit - present[at], 0)
            np.minimum(fits, left if weight == 1 else left // weight, out=fits)
        for term, cap in rules.cap.items():
            present = self.present.get(term)
            if term not in rules.match and present is not None:
                fits[present[at] > cap] = 0

    def require(self, fits: Ints, terms: tuple[int, ...]) -> None:
        """Leaves, in place, only hosts that have a pod of each term: host affinity."""
        for term in terms:
            present = self.present.get(term)
            if present is None:
                fits[:] = 0
            else:
                fits[present <= 0] = 0

    def add(self, hosts: Ints, counts: Ints, rules: HostRules) -> None:
        """Counts so many pods with these rules on each of these hosts."""
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
