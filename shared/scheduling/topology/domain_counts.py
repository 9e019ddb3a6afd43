"""How many pods of a class go to which zone (or any other domain), by counting.

Once a pod's domain is chosen it is a pod with one more node selector, and packing needs to know nothing of topology.
Counts are kept by term and value, with the pods that run already. A class is dealt out to the cheapest domain that its
rules still have room in; what its rules mean is kube-scheduler's, judged on the final state, so that it holds whatever
the order in which pods are bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.scheduling.rules.requirements import Requirements, ValueSet, both
from shared.scheduling.topology.host_counts import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class TopologySpread:
    """A spread rule over domains: the values that count for its minimum, and how far above it one may be."""

    max_skew: int
    min_domains: int
    eligible_domains: tuple[str, ...]

    def strictest(self, other: TopologySpread | None) -> TopologySpread:
        """Both rules at once, where a class has two about the same pods and domains."""
        if other is None:
            return self
        eligible = tuple(sorted({*self.eligible_domains, *other.eligible_domains}))
        return TopologySpread(min(self.max_skew, other.max_skew), max(self.min_domains, other.min_domains), eligible)


@dataclass(frozen=True, eq=False)
class DomainRules:
    """What a class counts for and asks for, by term: ``match`` pods each, rules of its own.

    ``guards`` are those of ``apart`` that it requires; others heed these alone, not what it would like.
    """

    match: Mapping[int, int] = field(default_factory=dict)
    topology_spread: Mapping[int, TopologySpread] = field(default_factory=dict)
    anti_affinity: frozenset[int] = frozenset()
    required_anti_affinity: frozenset[int] = frozenset()
    affinity: frozenset[int] = frozenset()


class DomainCounts:
    """The counts of every term in every domain, and where pods stand that want none of a term near them.

    ``active`` are the terms that somebody has a rule about, ``asked`` those of them that pods without a place have one
    about, ``wanted`` the spread that others ask of a term.
    """

    def __init__(self, keys: Mapping[int, str]) -> None:
        self.keys = keys
        self.counts: dict[int, dict[str, int]] = {}
        self.anti_affinity_counts: dict[int, dict[str, int]] = {}
        self.requested_spread: dict[int, TopologySpread] = {}
        self.active: set[int] = set()
        self.pending_terms: set[int] = set()

    def add(self, term: int, value: str, n: int) -> None:
        """Counts n pods of a term in a domain."""
        found = self.counts.setdefault(term, {})
        found[value] = found.get(value, 0) + n

    def add_anti_affinity(self, term: int, value: str, n: int) -> None:
        """Counts n pods in a domain that want none of the term there."""
        self.active.add(term)
        found = self.anti_affinity_counts.setdefault(term, {})
        found[value] = found.get(value, 0) + n

    def excluded_domains(self, rules: DomainRules) -> Requirements:
        """Where pods with these rules may not go since pods that run already want none of them there."""
        found: Requirements = {}
        for term in sorted(t for t in rules.match if t in self.active and t not in self.pending_terms):
            values = frozenset(v for v, n in self.anti_affinity_counts.get(term, {}).items() if n)
            if values:
                found = both(found, {self.keys[term]: ValueSet(values, complement=True, absent=True)})
        return found

    def count(self, term: int, value: str) -> int:
        """How many pods of a term a domain has."""
        return self.counts.get(term, {}).get(value, 0)

    def _least(self, term: int, topology_spread: TopologySpread) -> int:
        if topology_spread.min_domains and len(topology_spread.eligible_domains) < topology_spread.min_domains:
            return 0
        counts = self.counts.get(term, {})
        return min((counts.get(v, 0) for v in topology_spread.eligible_domains), default=0)

    def skew_left(self, term: int, topology_spread: TopologySpread, value: str) -> int:
        """How many more pods of a term a spread rule lets a domain have; less than none where it has too many."""
        return self._least(term, topology_spread) + topology_spread.max_skew - self.count(term, value)

    def room(self, rules: DomainRules, where: Mapping[str, str]) -> int:
        """How many more pods with these rules a domain takes (values by key) as counts stand."""
        room = NO_CAP
        for term, topology_spread in rules.topology_spread.items():
            value = where[self.keys[term]]
            left = self.skew_left(term, topology_spread, value)
            weight = rules.match.get(term, 0)
            room = min(room, left // weight) if weight else room if left >= 0 else 0
        for term in rules.anti_affinity:
            value = where[self.keys[term]]
            if self.count(term, value):
                return 0
            weight = rules.match.get(term, 0)
            if weight:
                room = min(room, 1 // weight)
        for term, weight in rules.match.items():
            key = self.keys[term]
            if weight and key in where and self.anti_affinity_counts.get(term, {}).get(where[key]):
                return 0
        for term in rules.affinity:
            if not self.count(term, where[self.keys[term]]) and not self._first(term, rules):
                return 0
        return max(0, room)

    def _first(self, term: int, rules: DomainRules) -> bool:
        """Whether the pod may be the first of an affinity: it matches itself, and nothing else does anywhere."""
        return bool(rules.match.get(term)) and not any(self.counts.get(term, {}).values())

    def awaits_affinity(self, rules: DomainRules) -> bool:
        """Whether an affinity of these rules is about pods that have no place yet."""
        return any(not any(self.counts.get(t, {}).values()) and not rules.match.get(t) for t in rules.affinity)

    def skew_room(self, rules: DomainRules, where: Mapping[str, str]) -> int:
        """How many more pods a domain takes without upsetting the spread of others that count them."""
        room = NO_CAP
        for term, weight in rules.match.items():
            topology_spread = self.requested_spread.get(term)
            if topology_spread is None or term in rules.topology_spread or not weight or self.keys[term] not in where:
                continue
            value = where[self.keys[term]]
            if value in topology_spread.eligible_domains:
                room = min(room, self.skew_left(term, topology_spread, value) // weight)
        return max(0, room)

    def take(self, rules: DomainRules, where: Mapping[str, str], n: int) -> None:
        """Counts n pods with these rules in a domain (n < 0: takes them out again)."""
        for term, weight in rules.match.items():
            if self.keys[term] in where and weight:
                self.add(term, where[self.keys[term]], weight * n)
        for term in rules.required_anti_affinity:
            self.add_anti_affinity(term, where[self.keys[term]], n)
