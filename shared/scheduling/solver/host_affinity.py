"""Pods that must share a host, bound together before anything is packed.

A required affinity over hosts ties its pods to others: to their own like, or to pods of another class. Bound to one of
these, they are one larger pod with the rules of all; what then doesn't fit together keeps its reason. A bundle goes by
a key of its own until the decision is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from shared.scheduling.rules.requirements import conflicting_key, intersect
from shared.scheduling.solver.domain_assignment import PendingGroup
from shared.scheduling.topology.domain_counts import DomainRules
from shared.scheduling.topology.host_counts import HostRules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.topology.domain_counts import DomainCounts
    from shared.scheduling.topology.feasibility import FeasibilityChecker

    Ints = NDArray[np.int64]

MARK = "\0bundle "
"""Begins the key of a bundle; no pod's key does."""


class Bundler:
    """Binds the pods of one run together; knows what each bundle holds."""

    def __init__(self, checker: FeasibilityChecker, domains: DomainCounts) -> None:
        self._checker = checker
        self._domain_counts = domains
        self.members: dict[str, list[tuple[PendingGroup, Ints, str]]] = {}
        self._made = 0

    def expand(self, key: str) -> list[str]:
        """The keys of the pods behind a key."""
        return (
            [pod for _, _, member in self.members[key] for pod in self.expand(member)] if key in self.members else [key]
        )

    def take_apart(self, key: str) -> list[tuple[PendingGroup, Ints, str]]:
        """The pods of a bundle, and of the bundles in it, with their groups; the bundle is no more."""
        found: list[tuple[PendingGroup, Ints, str]] = []
        for owner, requests, pod in self.members.pop(key):
            found += self.take_apart(pod) if pod in self.members else [(owner, requests, pod)]
        return found

    def bind(self, groups: Sequence[PendingGroup], present: Mapping[int, bool]) -> list[PendingGroup]:
        """The groups with those bound together that must be; ``present``: which rules have their pods on hosts already.

        A group whose affinity nobody can fulfil stays as it is, and will find no place.
        """
        made: list[PendingGroup] = [g for g in groups if not g.host_affinity]
        alike: dict[tuple[int, ...], list[PendingGroup]] = {}
        for group in sorted((g for g in groups if g.host_affinity), key=lambda g: g.sizes[0][1][0]):
            if all(present.get(t) for t in group.host_affinity):
                made.append(group)  # on the ground, beside those that are there
            elif all(t in group.host.match and not present.get(t) for t in group.host_affinity):
                alike.setdefault(group.host_affinity, []).append(group)
        for same in alike.values():
            made += self._with_themselves(same)
        done = {id(g) for g in made} | {id(g) for same in alike.values() for g in same}
        waiting = sorted((g for g in groups if g.host_affinity and id(g) not in done), key=lambda g: g.sizes[0][1][0])
        while waiting:
            # Those first whose leaders wait for nobody; where all wait for one another, none can be bound first.
            ready = [g for g in waiting if not any(o is not g and _leads(o, g) for o in waiting)]
            if not ready:
                made += waiting
                break
            for group in ready:
                made = self._with_others(group, made)
            waiting = [g for g in waiting if g not in ready]
        return [g for g in made if g.sizes]

    def _with_themselves(self, groups: Sequence[PendingGroup]) -> list[PendingGroup]:
        """All pods of groups with one affinity on one host: as many as the roomiest machine holds, smallest first.

        And no more than their spread lets any one domain have.
        """
        waiting = [(g, r, p) for g in groups for r, many in g.sizes for p in many]
        waiting.sort(key=lambda w: (int(w[1].sum()), w[2]))
        total = np.zeros_like(waiting[0][1])
        taken: list[tuple[PendingGroup, Ints, str]] = []
        joined: dict[int, PendingGroup] = {}
        room = np.zeros((0, len(total)), np.int64)
        rules = HostRules()
        match: dict[int, int] = {}
        for group, requests, pod in waiting:
            affinity = _host([rules, group.host])
            counted = {t: match.get(t, 0) + group.rules.match.get(t, 0) for t in (*match, *group.rules.match)}
            if not _borne(affinity) or not self._spread([*joined.values(), group], counted):
                continue
            with_it = room if id(group) in joined else self._shared([*joined.values(), group])
            if (with_it >= total + requests).all(1).any():
                room, rules, match = with_it, affinity, counted
                joined[id(group)] = group
                total = total + requests
                taken.append((group, requests, pod))
        if not taken:
            return list(groups)
        gone = {pod for _, _, pod in taken}
        bundle = self._bundle(taken)
        for group in groups:
            rest = [(r, [p for p in many if p not in gone]) for r, many in group.sizes]
            group.sizes = [(r, many) for r, many in rest if many]
        return [bundle, *groups]

    def _spread(self, groups: Sequence[PendingGroup], counted: Mapping[int, int]) -> bool:
        """Whether the spread of these groups lets one domain have so many more pods, by rule."""
        return all(
            counted[term]
            <= max(
                (self._domain_counts.skew_left(term, spread, v) for v in spread.eligible_domains),
                default=0,
            )
            for group in groups
            for term, spread in group.rules.topology_spread.items()
            if counted.get(term)
        )

    def _shared(self, groups: Sequence[PendingGroup]) -> Ints:
        """What the rows hold to which pods of all these groups may go together."""
        first = groups[0]
        alternatives = [a for _, a in first.alternatives]
        tolerations = first.pod_group.tolerations
        for other in groups[1:]:
            met = [intersect(a, b) for a in alternatives for _, b in other.alternatives]
            alternatives = [m for m in met if conflicting_key(m) is None]
            tolerations = tuple(t for t in tolerations if t in other.pod_group.tolerations)
        ports = frozenset().union(*(g.pod_group.ports for g in groups))
        options = np.zeros(len(self._checker.launch_options.template_of), np.bool_)
        for asked in alternatives:
            feasibility = self._checker.feasibility(
                asked,
                tolerations,
                first.host,
                tolerate_prefer_no_schedule=first.preferences.tolerate_prefer_no_schedule,
                ports=ports,
            )
            if feasibility is not None:
                options |= feasibility.options
        return self._checker.launch_options.free[options]

    def _with_others(self, group: PendingGroup, groups: Sequence[PendingGroup]) -> list[PendingGroup]:
        """The group's pods dealt out evenly to the pods that they must be beside."""
        targets = [g for g in groups if not g.host_affinity and _leads(g, group) and _met(g, group)]
        units = [(g, r, p) for g in targets for r, many in g.sizes for p in many]
        if not units:
            return [*groups, group]
        holding: list[list[tuple[PendingGroup, Ints, str]]] = [[u] for u in units]
        size = [u[1].copy() for u in units]
        roomiest = {id(g): self._roomiest(g, group) for g in targets}
        pods = [(r, p) for r, many in group.sizes for p in many]
        left: list[tuple[Ints, list[str]]] = []
        at = 0
        for requests, pod in pods:
            for step in range(len(units)):
                i = (at + step) % len(units)
                room = roomiest[id(units[i][0])]
                held = (room >= size[i] + requests).all(1).any()
                if held and self._bears(holding[i], group):
                    holding[i].append((group, requests, pod))
                    size[i] += requests
                    at = i + 1
                    break
            else:
                left.append((requests, [pod]))
        merged: dict[tuple[object, ...], PendingGroup] = {}
        rest: dict[int, list[tuple[Ints, list[str]]]] = {}
        for members in holding:
            first = members[0]
            if len(members) == 1:
                rest.setdefault(id(first[0]), []).append((first[1], [first[2]]))
                continue
            bundle = self._bundle(members)
            key = (id(first[0]), bundle.sizes[0][0].tobytes(), len(members))
            if key in merged:
                merged[key].sizes[0][1].extend(bundle.sizes[0][1])
            else:
                merged[key] = bundle
        for target in targets:
            target.sizes = rest.get(id(target), [])
        group.sizes = left
        return [*groups, *merged.values(), group]

    def _roomiest(self, target: PendingGroup, group: PendingGroup) -> Ints:
        """The rows that both may go to."""
        options = np.zeros(len(self._checker.launch_options.template_of), np.bool_)
        for _, mine in target.alternatives:
            for _, theirs in group.alternatives:
                a = self._checker.feasibility(
                    mine,
                    target.pod_group.tolerations,
                    target.host,
                    tolerate_prefer_no_schedule=target.preferences.tolerate_prefer_no_schedule,
                )
                b = self._checker.feasibility(
                    theirs,
                    group.pod_group.tolerations,
                    group.host,
                    tolerate_prefer_no_schedule=group.preferences.tolerate_prefer_no_schedule,
                )
                if a is not None and b is not None and (a.offerings & b.offerings).any():
                    options |= a.options & b.options
        return self._checker.launch_options.free[options]

    def _bears(self, members: Sequence[tuple[PendingGroup, Ints, str]], group: PendingGroup) -> bool:
        return _borne(_host([*(g.host for g, _, _ in members), group.host]))

    def _bundle(self, members: list[tuple[PendingGroup, Ints, str]]) -> PendingGroup:
        """The members as one pod: all their requirements, rules and requests."""
        key = f"{MARK}{self._made}"
        self._made += 1
        self.members[key] = members
        first = members[0][0]
        groups = list({id(g): g for g, _, _ in members}.values())
        alternatives = list(first.alternatives)
        tolerations = first.pod_group.tolerations
        for other in groups[1:]:
            met = [(i, intersect(a, b)) for i, a in alternatives for _, b in other.alternatives]
            alternatives = [(i, m) for i, m in met if conflicting_key(m) is None] or alternatives
            # A taint must be tolerated by every member.
            tolerations = tuple(t for t in tolerations if t in other.pod_group.tolerations)
        pods = replace(
            first.pod_group,
            tolerations=tolerations,
            ports=frozenset().union(*(g.pod_group.ports for g in groups)),
            mounted_volumes=frozenset().union(*(g.pod_group.mounted_volumes for g in groups)),
        )
        match: dict[int, int] = {}
        for g, _, _ in members:
            for term, n in g.rules.match.items():
                match[term] = match.get(term, 0) + n
        rules = DomainRules(
            match=match,
            topology_spread={t: e for g in groups for t, e in g.rules.topology_spread.items()},
            anti_affinity=frozenset().union(*(g.rules.anti_affinity for g in groups)),
            required_anti_affinity=frozenset().union(*(g.rules.required_anti_affinity for g in groups)),
            affinity=frozenset().union(*(g.rules.affinity for g in groups)),
        )
        total = sum((r for _, r, _ in members), np.zeros_like(members[0][1]))
        host = _host([g.host for g, _, _ in members])
        return PendingGroup(pods, first.preferences, alternatives, host, rules, (), [(total, [key])])


def _leads(target: PendingGroup, group: PendingGroup) -> bool:
    """Whether a pod of the target is what the group's pods must be beside."""
    return all(t in target.host.match for t in group.host_affinity)


def _met(target: PendingGroup, group: PendingGroup) -> bool:
    return any(conflicting_key(intersect(a, b)) is None for _, a in target.alternatives for _, b in group.alternatives)


def _borne(rules: HostRules) -> bool:
    return all(rules.match.get(t, 0) <= cap for t, cap in rules.cap.items())


def _host(rules: Sequence[HostRules]) -> HostRules:
    match: dict[int, int] = {}
    cap: dict[int, int] = {}
    for one in rules:
        for term, n in one.match.items():
            match[term] = match.get(term, 0) + n
        for term, limit in one.cap.items():
            cap[term] = min(cap.get(term, limit), limit)
    return HostRules(match, cap)
