"""Pods that must share a host, bound together before anything is packed.

A required affinity over hosts ties its pods to others: to their own like, or to pods of another class. Bound to one of
these, they are one larger pod with the rules of all; what then doesn't fit together keeps its reason. A bundle goes by
a key of its own until the decision is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shared.scheduling.dealing import Group
from shared.scheduling.domains import DomainRules
from shared.scheduling.filling import most
from shared.scheduling.kinds import HostRules
from shared.scheduling.requirements import both, contradiction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.kinds import Judge

    Ints = NDArray[np.int64]

MARK = "\0bundle "
"""Begins the key of a bundle; no pod's key does."""


class Bundler:
    """Binds the pods of one run together; knows what each bundle holds."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.members: dict[str, list[tuple[Group, Ints, str]]] = {}

    def expand(self, key: str) -> list[str]:
        """The keys of the pods behind a key."""
        return (
            [pod for _, _, member in self.members[key] for pod in self.expand(member)] if key in self.members else [key]
        )

    def bind(self, groups: Sequence[Group], present: Mapping[int, bool]) -> list[Group]:
        """The groups with those bound together that must be; ``present``: which rules have their pods on hosts already.

        A group whose affinity nobody can fulfil stays as it is, and will find no place.
        """
        made: list[Group] = [g for g in groups if not g.near]
        for group in sorted((g for g in groups if g.near), key=lambda g: g.sizes[0][1][0]):
            if all(present.get(t) for t in group.near):
                made.append(group)  # on the ground, beside those that are there
            elif all(t in group.host.match or present.get(t) for t in group.near):
                made += self._with_themselves(group)
            else:
                made = self._with_others(group, made)
        return [g for g in made if g.sizes]

    def _with_themselves(self, group: Group) -> list[Group]:
        """All pods of the group on one host: as many as the roomiest machine holds, smallest first."""
        pods = sorted(((r, p) for r, many in group.sizes for p in many), key=lambda x: (int(x[0].sum()), x[1]))
        kinds = [
            self._judge.kind(r, group.pods.tolerations, group.host, soft=group.wishes.soft, ports=group.pods.ports)
            for _, r in group.alternatives
        ]
        total = np.zeros_like(group.sizes[0][0])
        taken: list[tuple[Ints, str]] = []
        bears = min((group.host.cap[t] for t in group.host.cap if t in group.host.match), default=len(pods))
        for requests, pod in pods:
            if len(taken) >= bears or not any(
                k is not None and (self._judge.market.free[k.rows] >= total + requests).all(1).any() for k in kinds
            ):
                break
            total = total + requests
            taken.append((requests, pod))
        if not taken:
            return [group]
        left = {pod for _, pod in pods[len(taken) :]}
        bundle = self._bundle([(group, r, p) for r, p in taken])
        rest = [(r, [p for p in many if p in left]) for r, many in group.sizes]
        group.sizes = [(r, many) for r, many in rest if many]
        return [bundle, group]

    def _with_others(self, group: Group, groups: Sequence[Group]) -> list[Group]:
        """The group's pods dealt out evenly to the pods that they must be beside."""
        targets = [g for g in groups if all(t in g.host.match for t in group.near) and _met(g, group)]
        units = [(g, r, p) for g in targets for r, many in g.sizes for p in many]
        if not units:
            return [*groups, group]
        holding: list[list[tuple[Group, Ints, str]]] = [[u] for u in units]
        size = [u[1].copy() for u in units]
        roomiest = {id(g): self._roomiest(g, group) for g in targets}
        pods = [(r, p) for r, many in group.sizes for p in many]
        left: list[tuple[Ints, list[str]]] = []
        at = 0
        for requests, pod in pods:
            for step in range(len(units)):
                i = (at + step) % len(units)
                room = roomiest[id(units[i][0])]
                if len(room) and most(requests, room - size[i]).max() > 0 and self._bears(holding[i], group):
                    holding[i].append((group, requests, pod))
                    size[i] += requests
                    at = i + 1
                    break
            else:
                left.append((requests, [pod]))
        merged: dict[tuple[object, ...], Group] = {}
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

    def _roomiest(self, target: Group, group: Group) -> Ints:
        """The rows that both may go to."""
        rows = np.zeros(len(self._judge.market.pool_of), np.bool_)
        for _, mine in target.alternatives:
            for _, theirs in group.alternatives:
                a = self._judge.kind(mine, target.pods.tolerations, target.host, soft=target.wishes.soft)
                b = self._judge.kind(theirs, group.pods.tolerations, group.host, soft=group.wishes.soft)
                if a is not None and b is not None and (a.offerings & b.offerings).any():
                    rows |= a.rows & b.rows
        return self._judge.market.free[rows]

    def _bears(self, members: Sequence[tuple[Group, Ints, str]], group: Group) -> bool:
        rules = _host([*(g.host for g, _, _ in members), group.host])
        return all(rules.match.get(t, 0) <= cap for t, cap in rules.cap.items())

    def _bundle(self, members: list[tuple[Group, Ints, str]]) -> Group:
        """The members as one pod: all their requirements, rules and requests."""
        key = f"{MARK}{len(self.members)}"
        self.members[key] = members
        first = members[0][0]
        groups = list({id(g): g for g, _, _ in members}.values())
        alternatives = list(first.alternatives)
        tolerations = first.pods.tolerations
        for other in groups[1:]:
            met = [(i, both(a, b)) for i, a in alternatives for _, b in other.alternatives]
            alternatives = [(i, m) for i, m in met if contradiction(m) is None] or alternatives
            # A taint must be tolerated by every member.
            tolerations = tuple(t for t in tolerations if t in other.pods.tolerations)
        pods = replace(
            first.pods,
            tolerations=tolerations,
            ports=frozenset().union(*(g.pods.ports for g in groups)),
            mounted=frozenset().union(*(g.pods.mounted for g in groups)),
        )
        match: dict[int, int] = {}
        for g, _, _ in members:
            for term, n in g.rules.match.items():
                match[term] = match.get(term, 0) + n
        rules = DomainRules(
            match=match,
            even={t: e for g in groups for t, e in g.rules.even.items()},
            apart=frozenset().union(*(g.rules.apart for g in groups)),
            together=frozenset().union(*(g.rules.together for g in groups)),
        )
        total = sum((r for _, r, _ in members), np.zeros_like(members[0][1]))
        host = _host([g.host for g, _, _ in members])
        return Group(pods, first.wishes, alternatives, host, rules, (), [(total, [key])])


def _met(target: Group, group: Group) -> bool:
    return any(contradiction(both(a, b)) is None for _, a in target.alternatives for _, b in group.alternatives)


def _host(rules: Sequence[HostRules]) -> HostRules:
    match: dict[int, int] = {}
    cap: dict[int, int] = {}
    for one in rules:
        for term, n in one.match.items():
            match[term] = match.get(term, 0) + n
        for term, limit in one.cap.items():
            cap[term] = min(cap.get(term, limit), limit)
    return HostRules(match, cap)
