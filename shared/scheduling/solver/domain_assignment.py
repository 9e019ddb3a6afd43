"""Dealing the pods of a class out to domains, and onto places that are there already.

What comes out is free of topology but for rules about hosts: items whose kind is pinned to a domain where that
matters. Domains are taken cheapest first, as far as the rules have room; where places with room exist, they are the
cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from shared.scheduling.rules.requirements import intersect
from shared.scheduling.solver.fit import Item
from shared.scheduling.topology.host_counts import NO_CAP, HostRules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.rules.requirements import Requirements
    from shared.scheduling.solver.existing_capacity import ExistingCapacity
    from shared.scheduling.topology.domain_counts import DomainCounts, DomainRules
    from shared.scheduling.topology.feasibility import Feasibility, FeasibilityChecker, Pins
    from shared.scheduling.topology.pod_groups import PodGroup
    from shared.scheduling.topology.preferences import Preferences
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]

_MOST_DOMAINS = 512
_LIKED = 0.5
"""A preferred_domain domain counts as so much cheaper."""


@dataclass(eq=False)
class PendingGroup:
    """A class with the wishes that still count, and its pods by size."""

    pod_group: PodGroup
    preferences: Preferences
    alternatives: Sequence[tuple[int, Requirements]]
    host: HostRules
    rules: DomainRules
    host_affinity: tuple[int, ...]
    sizes: list[tuple[Ints, list[str]]]
    tried: int | None = None
    feasibilities: dict[Pins, Feasibility | None] = field(default_factory=dict)
    others: dict[Pins, list[Feasibility]] = field(default_factory=dict)
    """Where alternatives of the affinity lead to different machines: the kinds of all that do, cheapest first."""

    @property
    def count(self) -> int:
        """How many pods are still to be dealt."""
        return sum(len(pods) for _, pods in self.sizes)


@dataclass(frozen=True)
class Choice:
    """One domain (values by key) with the kind pinned to it and what a pod costs there."""

    where: Mapping[str, str]
    feasibility: Feasibility
    cost: float


class Dealer:
    """Deals groups out, one after the other."""

    def __init__(
        self,
        checker: FeasibilityChecker,
        topology: Topology,
        existing_capacity: ExistingCapacity,
        domains: DomainCounts,
        preferred_domain: str = "",
    ) -> None:
        self._checker = checker
        self._preferred_domain = preferred_domain
        self._topology = topology
        self._existing_capacity = existing_capacity
        self._domain_counts = domains
        self.items: list[Item] = []

    def deal(self, group: PendingGroup) -> None:
        """Places what fits on the ground and turns the rest into items; what finds no domain stays in the group."""
        keys = self._keys(group)
        choices = self._choices(group, keys)
        parts: dict[tuple[bool, ...], list[tuple[Ints, list[str]]]] = {}
        for size in group.sizes:
            parts.setdefault(tuple(self._held(c.feasibility, size[0]) for c in choices), []).append(size)
        left: list[tuple[Ints, list[str]]] = []
        for held, sizes in sorted(parts.items(), key=lambda p: (sum(p[0]), p[0])):
            group.sizes = sizes
            self._deal_part(group, [c for c, ok in zip(choices, held, strict=True) if ok])
            left += group.sizes
        group.sizes = [s for s in left if s[1]]

    def _held(self, feasibility: Feasibility, requests: Ints) -> bool:
        """Whether a domain may have room for a pod of this size: one that never has is none to be dealt to."""
        return bool(np.isfinite(self._checker.cost(feasibility, requests)) or feasibility.nodes.any())

    def _deal_part(self, group: PendingGroup, choices: Sequence[Choice]) -> None:
        """Deals the group's pods where all of them can be held in the same domains."""
        if not choices:
            return
        if len(self._existing_capacity) and any(c.feasibility.nodes.any() for c in choices):
            for size in group.sizes:
                self._deal_size(group, size, choices)
        else:
            self._deal_all(group, choices)

    def choices(self, group: PendingGroup) -> list[Choice]:
        """The domains that a group may go to, cheapest first."""
        return self._choices(group, self._keys(group))

    def _keys(self, group: PendingGroup) -> tuple[str, ...]:
        """The labels whose value has to be settled: what the class has rules about, and what others count it by.

        Where only pods that run already have a rule about it, it is enough to keep out of their domains.
        """
        rules, domains = group.rules, self._domain_counts
        terms = {*rules.topology_spread, *rules.anti_affinity, *rules.affinity}
        terms |= {t for t in rules.match if t in domains.pending_terms}
        return tuple(sorted({domains.keys[t] for t in terms}))

    def _choices(self, group: PendingGroup, keys: tuple[str, ...]) -> list[Choice]:
        required = {
            self._domain_counts.keys[t]
            for t in (*group.rules.topology_spread, *group.rules.anti_affinity, *group.rules.affinity)
        }
        values: list[list[tuple[str, str]]] = []
        base = self.feasibility(group, ())
        if base is None:
            return []
        for key in keys:
            found = self._topology.label_values(key, base.options, base.offerings, base.nodes)
            if found:
                values.append([(key, v) for v in found])
            elif key in required:
                return []
        choices: list[Choice] = []
        biggest = group.sizes[0][0]
        for n, pins in enumerate(product(*values)):
            if n == _MOST_DOMAINS:
                break
            feasibility = self.feasibility(group, pins)
            if feasibility is not None and (feasibility.launchable or feasibility.nodes.any()):
                cost = self._checker.cost(feasibility, biggest)
                liked = any(value == self._preferred_domain for _, value in pins)
                choices.append(Choice(dict(pins), feasibility, cost * _LIKED if liked else cost))
        return sorted(choices, key=lambda c: (round(c.cost, 9), tuple(sorted(c.where.items()))))

    def feasibility(self, group: PendingGroup, pins: Pins) -> Feasibility | None:
        """The group's kind in a domain, by its cheapest alternative; all alternatives hold for places."""
        if pins in group.feasibilities:
            return group.feasibilities[pins]
        found: list[tuple[float, int, Feasibility]] = []
        barred = self._domain_counts.excluded_domains(group.rules)
        for i, requirements in group.alternatives:
            feasibility = self._checker.feasibility(
                intersect(requirements, barred) if barred else requirements,
                group.pod_group.tolerations,
                group.host,
                tolerate_prefer_no_schedule=group.preferences.tolerate_prefer_no_schedule,
                pins=pins,
                ports=group.pod_group.ports,
                mounted_volumes=group.pod_group.mounted_volumes,
            )
            if feasibility is not None:
                found.append((self._checker.cost(feasibility, group.sizes[0][0]), i, feasibility))
        best: Feasibility | None = None
        if found:
            ordered = sorted(found, key=lambda f: (f[0], f[1]))
            _, group.tried, best = ordered[0]
            if len(found) > 1:
                places = np.logical_or.reduce([k.nodes for _, _, k in found])
                best = replace(best, nodes=places)
                distinct = {k.mask_key: replace(k, nodes=places) for _, _, k in reversed(ordered) if k.launchable}
                if len(distinct) > 1:
                    group.others[pins] = list(distinct.values())[::-1]
        group.feasibilities[pins] = best
        return best

    def _deal_size(self, group: PendingGroup, size: tuple[Ints, list[str]], choices: Sequence[Choice]) -> None:
        """Deals pods of one size, place by place where there is room, else to be bought."""
        requests, pods = size
        shut: set[int] = set()
        while pods:
            open_ = [
                (i, c, self._domain_counts.room(group.rules, c.where)) for i, c in enumerate(choices) if i not in shut
            ]
            open_ = [o for o in open_ if o[2] > 0]
            if not open_:
                return
            held = [
                (
                    int(
                        np.minimum(
                            self._existing_capacity.capacity(c.feasibility, requests, group.host_affinity), NO_CAP
                        ).sum()
                    ),
                    i,
                    c,
                    room,
                )
                for i, c, room in open_
            ]
            with_room = [h for h in held if h[0]]
            if with_room:
                _, i, choice, room = max(
                    with_room, key=lambda h: (self._domain_counts.skew_room(group.rules, h[2].where) > 0, h[0])
                )
                item = Item(choice.feasibility, requests, pods, owner=group, where=choice.where)
                placed = self._existing_capacity.place(
                    item, min(room, self._step(group, choice, room, len(pods))), group.host_affinity
                )
                self._domain_counts.take(group.rules, choice.where, placed)
                if not placed:
                    shut.add(i)
                continue
            launchable = [
                (i, c, room)
                for i, c, room in open_
                if not group.host_affinity and np.isfinite(self._checker.cost(c.feasibility, requests))
            ]
            if not launchable:
                return
            i, choice, room = min(
                launchable, key=lambda b: (self._domain_counts.skew_room(group.rules, b[1].where) <= 0, b[0])
            )
            n = min(room, self._step(group, choice, room, len(pods)), len(pods))
            self._emit(group, choice, requests, pods[:n])
            del pods[:n]
            self._domain_counts.take(group.rules, choice.where, n)

    def _step(self, group: PendingGroup, choice: Choice, room: int, left: int) -> int:
        """How many pods to deal at once: no more than stays polite to the spread of others, if it is now."""
        skew_room = self._domain_counts.skew_room(group.rules, choice.where)
        return max(1, min(room, skew_room if skew_room > 0 else 1, left))

    def _deal_all(self, group: PendingGroup, choices: Sequence[Choice]) -> None:
        """Deals all pods to be bought: first how many go where, then the largest to where they are cheapest."""
        choices = [c for c in choices if c.feasibility.launchable]
        if group.host_affinity or not choices:
            return
        left = group.count
        dealt = [0] * len(choices)
        while left:
            rooms = [self._domain_counts.room(group.rules, c.where) for c in choices]
            open_ = [i for i, room in enumerate(rooms) if room > 0]
            if not open_:
                break
            level = self._level(group, choices, open_, left)
            if level:
                for i in open_:
                    dealt[i] += level
                    self._domain_counts.take(group.rules, choices[i].where, level)
                left -= level * len(open_)
                continue
            i = min(open_, key=lambda j: (self._domain_counts.skew_room(group.rules, choices[j].where) <= 0, j))
            n = self._step(group, choices[i], rooms[i], left)
            dealt[i] += n
            self._domain_counts.take(group.rules, choices[i].where, n)
            left -= n
        self._hand_out(group, choices, dealt)

    def _level(self, group: PendingGroup, choices: Sequence[Choice], open_: Sequence[int], left: int) -> int:
        """How many pods may go to every domain alike, where each step of the dealing would only go round them all."""
        keys = {k for c in choices for k in c.where}
        rules, wanted = group.rules, self._domain_counts.requested_spread
        topology_spreads = [
            *rules.topology_spread.values(),
            *(wanted[t] for t in rules.match if t in wanted and t not in rules.topology_spread),
        ]
        if len(keys) != 1 or len(open_) != len(choices) or not topology_spreads or rules.anti_affinity:
            return 0
        if any(set(e.eligible_domains) != {c.where[k] for c in choices for k in c.where} for e in topology_spreads):
            return 0
        if any(len(e.eligible_domains) < e.min_domains for e in topology_spreads):
            return 0
        return max(0, left // len(open_) - 1)

    def _hand_out(self, group: PendingGroup, choices: Sequence[Choice], dealt: Sequence[int]) -> None:
        rest = list(dealt)
        at = 0
        for requests, pods in group.sizes:
            while pods and at < len(choices):
                n = min(rest[at], len(pods))
                if n:
                    self._emit(group, choices[at], requests, pods[:n])
                    del pods[:n]
                    rest[at] -= n
                if not rest[at]:
                    at += 1

    def _emit(self, group: PendingGroup, choice: Choice, requests: Ints, pods: list[str]) -> None:
        self.items.append(Item(choice.feasibility, requests, pods, owner=group, where=choice.where))
