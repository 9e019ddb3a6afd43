"""Assigns pods to topology domains, and to existing nodes.

Assigned pods need no more topology but host rules: their feasibility is pinned to a domain wherever a rule counts it.
Domains are taken cheapest first, as far as the rules allow. Domains with capacity on existing nodes come before.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from shared.base.struct import Struct, with_fields
from shared.scheduling.rules.requirements import intersect
from shared.scheduling.solver.fit import Item
from shared.scheduling.topology.domain_counts import NO_CAP, NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.existing_capacity import ExistingCapacity
    from shared.scheduling.solver.pending_groups import PendingGroup, Sizes
    from shared.scheduling.topology.feasibility import Feasibility, FeasibilityChecker, Pins
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]

_MAX_DOMAINS = 512
_PREFERRED_DOMAIN_PRICE = 0.5
"""The price of the preferred domain counts this share of it."""


class DomainChoice(Struct, eq=False):
    """A domain (values by topology key), the feasibility pinned to it, and what a pod costs there, USD per hour."""

    where: Mapping[str, str]
    feasibility: Feasibility
    cost: float


def cheapest_first(choices: Iterable[DomainChoice], preferred_domain: str) -> list[DomainChoice]:
    """The choices by cost, where that of the preferred domain counts less."""

    def order(choice: DomainChoice) -> tuple[float, tuple[tuple[str, str], ...]]:
        is_preferred = preferred_domain in choice.where.values()
        cost = choice.cost * _PREFERRED_DOMAIN_PRICE if is_preferred else choice.cost
        return round(cost, 9), tuple(sorted(choice.where.items()))

    return sorted(choices, key=order)


class DomainAssignment:
    """Assigns groups, one after the other; pods that need new nodes are in ``items``.

    ``all_choices`` are the choices of each group, in their order.
    """

    def __init__(
        self,
        checker: FeasibilityChecker,
        topology: Topology,
        existing_capacity: ExistingCapacity,
        preferred_domain: str = "",
    ) -> None:
        self._checker = checker
        self._preferred_domain = preferred_domain
        self._topology = topology
        self._existing_capacity = existing_capacity
        self._domain_counts = topology.domain_counts
        self.items: list[Item] = []
        self.all_choices: list[list[DomainChoice]] = []

    def assign_all(self, groups: Iterable[PendingGroup]) -> list[Item]:
        """Assigns all groups; those with affinity to pods that have no domain yet come after these."""
        queue = sorted(groups, key=self._order)
        while queue:
            waiting: list[PendingGroup] = []
            for group in queue:
                if self._domain_counts.awaits_affinity(group.rules):
                    waiting.append(group)
                else:
                    self.assign(group)
            if len(waiting) == len(queue):
                break
            queue = waiting
        return self.items

    def _order(self, group: PendingGroup) -> tuple[bool, bool, bool, list[int], str]:
        """Groups for existing nodes only come first, then groups without rules of their own; largest pods first."""
        feasibility = self.feasibility(group, ())
        rules = group.rules
        has_rules = bool(rules.topology_spread or rules.anti_affinity or rules.affinity)
        spreads_with_others = any(term not in rules.match for term in rules.topology_spread)
        largest, pods = group.sizes[0]
        return (
            feasibility is None or feasibility.launchable,
            spreads_with_others,
            has_rules,
            [-int(amount) for amount in largest],
            pods[0],
        )

    def assign(self, group: PendingGroup) -> None:
        """Places pods on existing nodes and makes items of the rest; pods without a domain stay in the group."""
        choices = self.choices(group)
        sizes_by_choices: dict[tuple[bool, ...], Sizes] = {}
        for size in group.sizes:
            sizes_by_choices.setdefault(tuple(self._may_hold(c.feasibility, size[0]) for c in choices), []).append(size)
        left: Sizes = []
        for holds, sizes in sorted(sizes_by_choices.items(), key=lambda p: (sum(p[0]), p[0])):
            group.sizes = sizes
            self._assign_sizes(group, [c for c, held in zip(choices, holds, strict=True) if held])
            left += group.sizes
        group.sizes = [size for size in left if size[1]]

    def _may_hold(self, feasibility: Feasibility, requests: Ints) -> bool:
        """Whether a new or existing node could hold a pod of this size in a domain."""
        return bool(np.isfinite(self._checker.cost(feasibility, requests)) or feasibility.nodes.any())

    def _assign_sizes(self, group: PendingGroup, choices: Sequence[DomainChoice]) -> None:
        """Assigns the group's pods, all of which may go to the same domains."""
        if not choices:
            return
        if len(self._existing_capacity) and any(c.feasibility.nodes.any() for c in choices):
            for requests, pods in group.sizes:
                self._assign_one_size(group, requests, pods, choices)
        else:
            self._assign_to_new_nodes(group, choices)

    # --- the domains of a group ---

    def choices(self, group: PendingGroup) -> list[DomainChoice]:
        """The domains that a group may go to, cheapest first."""
        unpinned = self.feasibility(group, ())
        if unpinned is None:
            return []
        domains = self._domains(group, unpinned)
        choices: list[DomainChoice] = []
        largest = group.sizes[0][0]
        for n, pins in enumerate(product(*domains)):
            if n == _MAX_DOMAINS:
                break
            feasibility = self.feasibility(group, pins)
            if feasibility is not None and (feasibility.launchable or feasibility.nodes.any()):
                choices.append(DomainChoice(dict(pins), feasibility, self._checker.cost(feasibility, largest)))
        choices = cheapest_first(choices, self._preferred_domain)
        self.all_choices.append(choices)
        return choices

    def _domains(self, group: PendingGroup, unpinned: Feasibility) -> list[list[tuple[str, str]]]:
        """For each topology key that counts, the domains to choose from; none for one that the pods can't get."""
        keys, rules = self._domain_counts.keys, group.rules
        required = {keys[t] for t in (*rules.topology_spread, *rules.affinity)}
        excluding = {keys[t] for t in rules.anti_affinity}
        domains: list[list[tuple[str, str]]] = []
        for key in self._keys(group):
            values = self._checker.label_values(key, unpinned.options, unpinned.offerings, unpinned.nodes)
            if key in required:
                domains.append([(key, value) for value in values])
            elif values or key in excluding:
                domains.append([(key, value) for value in (*values, NO_DOMAIN)])
        return domains

    def _keys(self, group: PendingGroup) -> tuple[str, ...]:
        """The topology keys of the group's rules, and of other pending groups' rules that count its pods.

        For rules of running pods only, it is enough to exclude their domains.
        """
        rules, counts = group.rules, self._domain_counts
        terms = {*rules.topology_spread, *rules.anti_affinity, *rules.affinity}
        terms |= {t for t in rules.match if t in counts.pending_terms}
        return tuple(sorted({counts.keys[t] for t in terms}))

    def feasibility(self, group: PendingGroup, pins: Pins) -> Feasibility | None:
        """The group's feasibility in a domain: its cheapest alternative on new nodes, all of them on existing nodes."""
        if pins not in group.feasibilities:
            group.feasibilities[pins] = self._feasibility(group, pins)
        return group.feasibilities[pins]

    def _feasibility(self, group: PendingGroup, pins: Pins) -> Feasibility | None:
        feasible: list[tuple[float, int, Feasibility]] = []
        excluded = self._domain_counts.excluded_domains(group.rules)
        for i, requirements in group.alternatives:
            feasibility = self._checker.feasibility(
                intersect(requirements, excluded) if excluded else requirements,
                group.pod_group.tolerations,
                group.host,
                tolerate_prefer_no_schedule=group.preferences.tolerate_prefer_no_schedule,
                pins=pins,
                ports=group.pod_group.ports,
                mounted_volumes=group.pod_group.mounted_volumes,
            )
            if feasibility is not None:
                feasible.append((self._checker.cost(feasibility, group.sizes[0][0]), i, feasibility))
        if not feasible:
            return None
        by_cost = sorted(feasible, key=lambda f: (f[0], f[1]))
        _, group.tried, cheapest = by_cost[0]
        if len(feasible) == 1:
            return cheapest
        nodes = np.logical_or.reduce([f.nodes for _, _, f in feasible])
        launchable = {f.mask_key: with_fields(f, nodes=nodes) for _, _, f in reversed(by_cost) if f.launchable}
        if len(launchable) > 1:
            group.launchable_alternatives[pins] = list(launchable.values())[::-1]
        return with_fields(cheapest, nodes=nodes)

    # --- existing nodes before new nodes, size by size ---

    def _assign_one_size(
        self, group: PendingGroup, requests: Ints, pods: list[str], choices: Sequence[DomainChoice]
    ) -> None:
        """Assigns pods of one size: to existing nodes where there is capacity, else to new nodes."""
        full: set[int] = set()
        while pods:
            open_domains = [
                (i, choice, room)
                for i, choice in enumerate(choices)
                if i not in full and (room := self._domain_counts.room(group.rules, choice.where)) > 0
            ]
            on_existing = [
                (capacity, i, choice, room)
                for i, choice, room in open_domains
                if (capacity := self._capacity(group, choice, requests))
            ]
            if on_existing:
                _, i, choice, room = max(on_existing, key=lambda e: (self._keeps_skew(group, e[2]), e[0]))
                if not self._place(group, choice, requests, pods, room):
                    full.add(i)
                continue
            launchable = [
                (i, choice, room)
                for i, choice, room in open_domains
                if not group.host_affinity and np.isfinite(self._checker.cost(choice.feasibility, requests))
            ]
            if not launchable:
                return
            _, choice, room = min(launchable, key=lambda e: (not self._keeps_skew(group, e[1]), e[0]))
            n = self._step(group, choice, room, len(pods))
            self._add_item(group, choice, requests, pods[:n])
            del pods[:n]
            self._domain_counts.take(group.rules, choice.where, n)

    def _capacity(self, group: PendingGroup, choice: DomainChoice, requests: Ints) -> int:
        """How many pods of this size existing nodes of the domain hold."""
        capacity = self._existing_capacity.capacity(choice.feasibility, requests, group.host_affinity)
        return int(np.minimum(capacity, NO_CAP).sum())

    def _place(self, group: PendingGroup, choice: DomainChoice, requests: Ints, pods: list[str], room: int) -> int:
        """Places some pods on existing nodes of the domain; how many. They leave ``pods``."""
        item = Item(choice.feasibility, requests, pods, owner=group, where=choice.where)
        n = self._step(group, choice, room, len(pods))
        placed = self._existing_capacity.place(item, n, group.host_affinity)
        self._domain_counts.take(group.rules, choice.where, placed)
        return placed

    def _keeps_skew(self, group: PendingGroup, choice: DomainChoice) -> bool:
        """Whether another pod in the domain keeps the maxSkew of other groups that count it."""
        return self._domain_counts.skew_room(group.rules, choice.where) > 0

    def _step(self, group: PendingGroup, choice: DomainChoice, room: int, left: int) -> int:
        """How many pods to assign at once: as many as keep the maxSkew of other groups, but one at least."""
        skew_room = self._domain_counts.skew_room(group.rules, choice.where)
        return max(1, min(room, skew_room if skew_room > 0 else 1, left))

    # --- new nodes only, all sizes together ---

    def _assign_to_new_nodes(self, group: PendingGroup, choices: Sequence[DomainChoice]) -> None:
        """Assigns all pods to new nodes: first how many go to each domain, then the largest to the cheapest domain."""
        choices = [c for c in choices if c.feasibility.launchable]
        if group.host_affinity or not choices:
            return
        left = group.count
        counts = [0] * len(choices)
        while left:
            rooms = [self._domain_counts.room(group.rules, c.where) for c in choices]
            open_domains = [i for i, room in enumerate(rooms) if room > 0]
            if not open_domains:
                break
            each = self._count_for_all(group, choices, open_domains, left)
            if each:
                for i in open_domains:
                    counts[i] += each
                    self._domain_counts.take(group.rules, choices[i].where, each)
                left -= each * len(open_domains)
                continue
            i = min(open_domains, key=lambda j: (not self._keeps_skew(group, choices[j]), j))
            n = self._step(group, choices[i], rooms[i], left)
            counts[i] += n
            self._domain_counts.take(group.rules, choices[i].where, n)
            left -= n
        self._distribute(group, choices, counts)

    def _count_for_all(
        self, group: PendingGroup, choices: Sequence[DomainChoice], open_domains: Sequence[int], left: int
    ) -> int:
        """How many pods may go to every domain alike, where single steps would only go round all domains; or 0."""
        keys = {k for c in choices for k in c.where}
        rules, requested = group.rules, self._domain_counts.requested_spread
        spreads = [
            *rules.topology_spread.values(),
            *(requested[t] for t in rules.match if t in requested and t not in rules.topology_spread),
        ]
        if len(keys) != 1 or len(open_domains) != len(choices) or not spreads or rules.anti_affinity:
            return 0
        domains = {value for c in choices for value in c.where.values()}
        if any(set(s.eligible_domains) != domains or len(s.eligible_domains) < s.min_domains for s in spreads):
            return 0
        return max(0, left // len(open_domains) - 1)

    def _distribute(self, group: PendingGroup, choices: Sequence[DomainChoice], counts: Sequence[int]) -> None:
        """Makes items of the group's pods, largest first: as many for each choice as ``counts`` says."""
        left = list(counts)
        at = 0
        for requests, pods in group.sizes:
            while pods and at < len(choices):
                n = min(left[at], len(pods))
                if n:
                    self._add_item(group, choices[at], requests, pods[:n])
                    del pods[:n]
                    left[at] -= n
                if not left[at]:
                    at += 1

    def _add_item(self, group: PendingGroup, choice: DomainChoice, requests: Ints, pods: list[str]) -> None:
        self.items.append(Item(choice.feasibility, requests, pods, owner=group, where=choice.where))
