"""How many pods of each term every domain (zone, capacity type, any other label value) has, and how many more it takes.

A pod whose domain is chosen is a pod with one more node selector, so packing needs no topology. Counts include pods
that run already. The rules are kube-scheduler's, evaluated on the final state, so they hold in whatever order the pods
are bound.

Rules about hosts, which are domains too, are counted for many hosts at once. Such a rule limits how many pods that a
term matches may run on the host of a pod with the rule: anti-affinity allows the pod itself only, a spread over hosts
maxSkew pods, a host port one. Required rules are symmetric: a pod may not go to a host where a running pod's rule would
be violated. A preference only limits where its own pod goes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared.base.struct import Struct
from shared.scheduling.rules.requirements import Requirements, ValueSet, intersect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


NO_CAP = 1 << 30
"""More pods than any host or domain takes."""
NO_DOMAIN = "<none>"
"""In place of a domain: nodes without the label. There, no anti-affinity over it excludes a pod, and no pod counts."""


class HostRules(Struct, eq=False, dict=True):
    """A pod's part in rules about hosts, by term.

    ``match``: how many pods it counts for. ``cap``: how many pods of the term its host may have, also after it came.
    ``preferred``: how many the host may have, with the pod, when the pod chooses it.
    """

    match: Mapping[int, int] = {}
    cap: Mapping[int, int] = {}
    preferred: Mapping[int, int] = {}

    @cached_property
    def own(self) -> Mapping[int, int]:
        """The limits of the pod's own choice: the required and the preferred ones."""
        if not self.preferred:
            return self.cap
        own = dict(self.cap)
        for term, limit in self.preferred.items():
            own[term] = min(own.get(term, limit), limit)
        return own

    @cached_property
    def key(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """A hashable form: equal for equal rules."""
        return tuple(tuple(sorted(limits.items())) for limits in (self.match, self.cap, self.preferred))


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
            own_cap = rules.own.get(term, NO_CAP)
            if caps is None and own_cap == NO_CAP:
                continue
            limit = own_cap if caps is None else np.minimum(caps[at], own_cap)
            present = self.present.get(term)
            left = np.maximum(limit if present is None else limit - present[at], 0)
            np.minimum(fits, left if weight == 1 else left // weight, out=fits)
        for term, cap in rules.own.items():
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
        """Counts that many pods with these rules on each of these hosts."""
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


class OneHost:
    """How many pods of each term one host has (``present``), and how many its pods allow (``caps``)."""

    def __init__(self) -> None:
        self.present: dict[int, int] = {}
        self.caps: dict[int, int] = {}

    def room(self, rules: HostRules) -> int:
        """How many pods with these rules the host takes."""
        room, own = NO_CAP, rules.own
        for term, weight in rules.match.items():
            cap = min(self.caps.get(term, NO_CAP), own.get(term, NO_CAP))
            if cap < NO_CAP:
                room = min(room, (cap - self.present.get(term, 0)) // weight)
        if any(self.present.get(term, 0) > cap for term, cap in own.items() if term not in rules.match):
            return 0
        return max(0, room)

    def add(self, rules: HostRules, n: int) -> None:
        """Counts n pods with these rules."""
        for term, weight in rules.match.items():
            self.present[term] = self.present.get(term, 0) + weight * n
        for term, cap in rules.cap.items():
            self.caps[term] = min(self.caps.get(term, cap), cap)


class TopologySpread(Struct):
    """A spread constraint over domains; ``eligible_domains`` count for the global minimum."""

    max_skew: int
    min_domains: int
    eligible_domains: tuple[str, ...]

    def strictest(self, spread: TopologySpread | None) -> TopologySpread:
        """Both constraints in one, for a group with two over the same pods and domains."""
        if spread is None:
            return self
        eligible = tuple(sorted({*self.eligible_domains, *spread.eligible_domains}))
        return TopologySpread(min(self.max_skew, spread.max_skew), max(self.min_domains, spread.min_domains), eligible)


class DomainRules(Struct, eq=False):
    """A group's part in rules about domains, by term.

    ``match``: how many pods each of its pods counts for. The others are rules of its own. ``required_anti_affinity`` is
    the part of ``anti_affinity`` that is required: only that part binds other groups.
    """

    match: Mapping[int, int] = {}
    topology_spread: Mapping[int, TopologySpread] = {}
    anti_affinity: frozenset[int] = frozenset()
    required_anti_affinity: frozenset[int] = frozenset()
    affinity: frozenset[int] = frozenset()


class DomainCounts:
    """Pods by term and domain, and pods with required anti-affinity by term and domain.

    ``active`` are the terms that any rule is about, ``pending_terms`` those that a rule of pending pods is about,
    ``requested_spread`` the strictest spread that any group has over a term.
    """

    def __init__(self, keys: Mapping[int, str]) -> None:
        self.keys = keys
        self.counts: dict[int, dict[str, int]] = {}
        self.anti_affinity_counts: dict[int, dict[str, int]] = {}
        self.requested_spread: dict[int, TopologySpread] = {}
        self.active: set[int] = set()
        self.pending_terms: set[int] = set()

    # --- counting ---

    def count(self, term: int, domain: str) -> int:
        """How many pods of a term a domain has."""
        return self.counts.get(term, {}).get(domain, 0)

    def add(self, term: int, domain: str, n: int) -> None:
        """Counts n pods of a term in a domain."""
        counts = self.counts.setdefault(term, {})
        counts[domain] = counts.get(domain, 0) + n

    def add_anti_affinity(self, term: int, domain: str, n: int) -> None:
        """Counts n pods in a domain with required anti-affinity to a term."""
        self.active.add(term)
        counts = self.anti_affinity_counts.setdefault(term, {})
        counts[domain] = counts.get(domain, 0) + n

    def take(self, rules: DomainRules, where: Mapping[str, str], n: int) -> None:
        """Counts n pods with these rules in a domain (values by topology key); n < 0 removes them."""
        for term, weight in rules.match.items():
            domain = where.get(self.keys[term], NO_DOMAIN)
            if domain != NO_DOMAIN and weight:
                self.add(term, domain, weight * n)
        for term in rules.required_anti_affinity:
            if where[self.keys[term]] != NO_DOMAIN:
                self.add_anti_affinity(term, where[self.keys[term]], n)

    # --- room ---

    def room(self, rules: DomainRules, where: Mapping[str, str]) -> int:
        """How many more pods with these rules a domain (values by topology key) takes, as counts are now.

        >>> counts = DomainCounts({0: "topology.kubernetes.io/zone"})
        >>> counts.add(0, "a", 1)
        >>> apart = DomainRules(match={0: 1}, anti_affinity=frozenset({0}))
        >>> [counts.room(apart, {"topology.kubernetes.io/zone": zone}) for zone in ("a", "b")]
        [0, 1]
        """
        if self._blocked_by_anti_affinity(rules, where) or self._lacks_affinity(rules, where):
            return 0
        room = NO_CAP
        for term, spread in rules.topology_spread.items():
            left = self.skew_left(term, spread, where[self.keys[term]])
            weight = rules.match.get(term, 0)
            room = min(room, left // weight) if weight else room if left >= 0 else 0
        for term in rules.anti_affinity:
            weight = rules.match.get(term, 0)
            if weight and where[self.keys[term]] != NO_DOMAIN:
                room = min(room, 1 // weight)
        return max(0, room)

    def _blocked_by_anti_affinity(self, rules: DomainRules, where: Mapping[str, str]) -> bool:
        """Whether the group's own anti-affinity, or that of pods in the domain, excludes it. Both are symmetric."""
        for term in rules.anti_affinity:
            if self.count(term, where[self.keys[term]]):
                return True
        for term, weight in rules.match.items():
            key = self.keys[term]
            if weight and key in where and self.anti_affinity_counts.get(term, {}).get(where[key]):
                return True
        return False

    def _lacks_affinity(self, rules: DomainRules, where: Mapping[str, str]) -> bool:
        for term in rules.affinity:
            if not self.count(term, where[self.keys[term]]) and not self._may_be_first(term, rules):
                return True
        return False

    def _may_be_first(self, term: int, rules: DomainRules) -> bool:
        """Whether the pod may be the first of its affinity: it matches itself, and no pod anywhere matches."""
        return bool(rules.match.get(term)) and not any(self.counts.get(term, {}).values())

    def awaits_affinity(self, rules: DomainRules) -> bool:
        """Whether a required affinity is to other pods, none of which has a domain yet."""
        return any(not any(self.counts.get(t, {}).values()) and not rules.match.get(t) for t in rules.affinity)

    def skew_left(self, term: int, spread: TopologySpread, domain: str) -> int:
        """How many more pods of a term maxSkew allows in a domain; negative where it has too many.

        >>> counts = DomainCounts({0: "topology.kubernetes.io/zone"})
        >>> counts.add(0, "a", 3)
        >>> counts.add(0, "b", 2)
        >>> spread = TopologySpread(max_skew=1, min_domains=0, eligible_domains=("a", "b"))
        >>> counts.skew_left(0, spread, "a"), counts.skew_left(0, spread, "b")
        (0, 1)
        """
        return self._global_minimum(term, spread) + spread.max_skew - self.count(term, domain)

    def _global_minimum(self, term: int, spread: TopologySpread) -> int:
        if spread.min_domains and len(spread.eligible_domains) < spread.min_domains:
            return 0
        counts = self.counts.get(term, {})
        return min((counts.get(domain, 0) for domain in spread.eligible_domains), default=0)

    def skew_room(self, rules: DomainRules, where: Mapping[str, str]) -> int:
        """How many more pods with these rules a domain takes without using up the maxSkew of groups that count them."""
        room = NO_CAP
        for term, weight in rules.match.items():
            spread = self.requested_spread.get(term)
            if spread is None or term in rules.topology_spread or not weight or self.keys[term] not in where:
                continue
            domain = where[self.keys[term]]
            if domain in spread.eligible_domains:
                room = min(room, self.skew_left(term, spread, domain) // weight)
        return max(0, room)

    def excluded_domains(self, rules: DomainRules) -> Requirements:
        """Requirements that exclude domains whose running pods have required anti-affinity to these pods.

        Only terms that no pending pod has a rule about: the domains of the others are chosen with :meth:`room`.
        """
        excluded: Requirements = {}
        for term in sorted(t for t in rules.match if t in self.active and t not in self.pending_terms):
            domains = frozenset(d for d, n in self.anti_affinity_counts.get(term, {}).items() if n)
            if domains:
                excluded = intersect(excluded, {self.keys[term]: ValueSet(domains, complement=True, absent=True)})
        return excluded
