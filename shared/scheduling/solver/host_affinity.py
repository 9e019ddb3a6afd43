"""Host affinity: pods that must share a host are bound into bundles before anything is packed.

A required pod affinity over hosts ties pods to others: to their own replicas, or to pods of another group. A bundle is
one larger pod with the requirements, rules and requests of all its members. It has a key of its own until the decision
is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shared.base.struct import with_fields
from shared.scheduling.rules.requirements import conflicting_key, intersect
from shared.scheduling.solver.pending_groups import PendingGroup
from shared.scheduling.topology.domain_counts import DomainRules, HostRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Toleration
    from shared.scheduling.rules.requirements import Requirements
    from shared.scheduling.solver.existing_capacity import ExistingCapacity
    from shared.scheduling.solver.pending_groups import Sizes
    from shared.scheduling.topology.domain_counts import DomainCounts
    from shared.scheduling.topology.feasibility import Feasibility, FeasibilityChecker

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

_BUNDLE_PREFIX = "\0bundle "
"""Begins the key of a bundle; no pod's key does."""


class Member(NamedTuple):
    """A pod of a bundle, or a bundle in it."""

    group: PendingGroup
    requests: Ints
    key: str


class HostAffinity:
    """Binds the pods of a plan into bundles, and resolves bundles into their pods."""

    def __init__(
        self, checker: FeasibilityChecker, domain_counts: DomainCounts, existing_capacity: ExistingCapacity
    ) -> None:
        self._checker = checker
        self._existing_capacity = existing_capacity
        self._domain_counts = domain_counts
        self._members: dict[str, list[Member]] = {}
        self._count = 0

    def is_bundle(self, key: str) -> bool:
        """Whether a key is that of a bundle."""
        return key in self._members

    def pod_keys(self, keys: Iterable[str]) -> list[str]:
        """The keys of pods, bundles replaced by their pods."""
        return [pod for key in keys for pod in self._pod_keys(key)]

    def _pod_keys(self, key: str) -> Iterator[str]:
        if key in self._members:
            for member in self._members[key]:
                yield from self._pod_keys(member.key)
        else:
            yield key

    def unbind(self, groups: Iterable[PendingGroup]) -> list[PendingGroup]:
        """Returns the unscheduled bundles of these groups to the groups of their pods, which are returned."""
        owners: list[PendingGroup] = []
        for group in groups:
            for _, pods in group.sizes:
                for key in [pod for pod in pods if pod in self._members]:
                    for member in self._resolve(key):
                        member.group.sizes.append((member.requests, [member.key]))
                        owners.append(member.group)
                    pods.remove(key)
            group.sizes = [size for size in group.sizes if size[1]]
        return owners

    def _resolve(self, key: str) -> list[Member]:
        """The pods of a bundle and of the bundles in it; the bundle is forgotten."""
        pods: list[Member] = []
        for member in self._members.pop(key):
            pods += self._resolve(member.key) if member.key in self._members else [member]
        return pods

    def bind(self, groups: Sequence[PendingGroup], present: Mapping[int, bool]) -> list[PendingGroup]:
        """The groups, with pods bound that must share a host; ``present``: whether any host has pods of a host term.

        A group whose affinity can't be satisfied stays as it is, and won't be scheduled.
        """
        bound = [g for g in groups if not g.host_affinity]
        to_replicas: dict[tuple[int, ...], list[PendingGroup]] = {}
        to_others: list[PendingGroup] = []
        for group in sorted((g for g in groups if g.host_affinity), key=_first_pod):
            if all(present.get(t) for t in group.host_affinity):
                bound.append(group)  # for existing hosts that have these pods
            elif all(t in group.host.match and not present.get(t) for t in group.host_affinity):
                to_replicas.setdefault(group.host_affinity, []).append(group)
            else:
                to_others.append(group)
        for members in to_replicas.values():
            bound += self._bind_replicas(members)
        return [g for g in self._bind_to_targets(to_others, bound) if g.sizes]

    def _bind_to_targets(self, waiting: list[PendingGroup], bound: list[PendingGroup]) -> list[PendingGroup]:
        """Binds groups to the pods that their affinity selects; groups that no other waits for come last."""
        while waiting:
            ready = [g for g in waiting if not any(t is not g and _is_selected(t, g) for t in waiting)]
            if not ready:
                return bound + waiting  # a cycle: no group can be bound first
            for group in ready:
                bound = self._bind_to_others(group, bound)
            waiting = [g for g in waiting if g not in ready]
        return bound

    # --- affinity to the group's own replicas ---

    def _bind_replicas(self, groups: Sequence[PendingGroup]) -> list[PendingGroup]:
        """One bundle of groups with the same affinity: as many pods as the largest node holds, smallest first."""
        members = self._replicas_for_one_host(groups)
        if not members:
            return list(groups)
        keys = {member.key for member in members}
        bundle = self._bundle(members)
        for group in groups:
            left = [(requests, [p for p in pods if p not in keys]) for requests, pods in group.sizes]
            group.sizes = [size for size in left if size[1]]
        return [bundle, *groups]

    def _replicas_for_one_host(self, groups: Sequence[PendingGroup]) -> list[Member]:
        """The pods that one host holds, within host rules and the maxSkew of any one domain."""
        queue = [Member(g, requests, pod) for g in groups for requests, pods in g.sizes for pod in pods]
        queue.sort(key=lambda m: (int(m.requests.sum()), m.key))
        total = np.zeros_like(queue[0].requests)
        members: list[Member] = []
        joined: dict[int, PendingGroup] = {}
        free = np.zeros((0, len(total)), np.int64)
        host_rules = HostRules()
        match: dict[int, int] = {}
        for member in queue:
            group = member.group
            rules_with_it = _merged_host_rules([host_rules, group.host])
            terms = (*match, *group.rules.match)
            match_with_it = {t: match.get(t, 0) + group.rules.match.get(t, 0) for t in terms}
            groups_with_it = [*joined.values(), group]
            if not _is_satisfied(rules_with_it) or not self._keeps_skew(groups_with_it, match_with_it):
                continue
            free_with_it = free if id(group) in joined else self._free_for_all(groups_with_it)
            if (free_with_it >= total + member.requests).all(1).any():
                free, host_rules, match = free_with_it, rules_with_it, match_with_it
                joined[id(group)] = group
                total = total + member.requests
                members.append(member)
        return members

    def _keeps_skew(self, groups: Sequence[PendingGroup], match: Mapping[int, int]) -> bool:
        """Whether the groups' spread allows that many more pods of each term in one domain."""
        return all(
            match[term]
            <= max((self._domain_counts.skew_left(term, spread, d) for d in spread.eligible_domains), default=0)
            for group in groups
            for term, spread in group.rules.topology_spread.items()
            if match.get(term)
        )

    def _free_for_all(self, groups: Sequence[PendingGroup]) -> Ints:
        """What one host holds that all these groups may share: hosts x resources."""
        first = groups[0]
        alternatives, tolerations = _merged_alternatives(groups)
        ports = frozenset().union(*(g.pod_group.ports for g in groups))
        options, nodes = self._no_hosts()
        for _, alternative in alternatives:
            feasibility = self._checker.feasibility(
                alternative,
                tolerations,
                first.host,
                tolerate_prefer_no_schedule=first.preferences.tolerate_prefer_no_schedule,
                ports=ports,
            )
            if feasibility is not None:
                options |= feasibility.options
                nodes |= feasibility.nodes
        return self._free(options, nodes)

    def _no_hosts(self) -> tuple[Bools, Bools]:
        """Masks of no launch option and of no existing node."""
        return np.zeros(len(self._checker.launch_options.template_of), np.bool_), np.zeros(
            len(self._existing_capacity), np.bool_
        )

    def _free(self, options: Bools, nodes: Bools) -> Ints:
        """What these launch options hold; without any, what these existing nodes have left."""
        if options.any():
            return self._checker.launch_options.free[options]
        return self._existing_capacity.free(nodes)

    # --- affinity to pods of other groups ---

    def _bind_to_others(self, group: PendingGroup, groups: Sequence[PendingGroup]) -> list[PendingGroup]:
        """The groups with the group's pods distributed evenly over the pods that its affinity selects."""
        targets = [g for g in groups if not g.host_affinity and _is_selected(g, group) and _can_share_node(g, group)]
        hosts = [[Member(g, requests, pod)] for g in targets for requests, pods in g.sizes for pod in pods]
        if not hosts:
            return [*groups, group]
        left = self._distribute(group, hosts, {id(g): self._free_for_both(g, group) for g in targets})
        bundles: dict[tuple[object, ...], PendingGroup] = {}
        alone: dict[int, Sizes] = {}
        for members in hosts:
            target = members[0]
            if len(members) == 1:
                alone.setdefault(id(target.group), []).append((target.requests, [target.key]))
                continue
            bundle = self._bundle(members)
            key = (id(target.group), bundle.sizes[0][0].tobytes(), len(members))
            if key in bundles:
                bundles[key].sizes[0][1].extend(bundle.sizes[0][1])
            else:
                bundles[key] = bundle
        for target_group in targets:
            target_group.sizes = alone.get(id(target_group), [])
        group.sizes = left
        return [*groups, *bundles.values(), group]

    def _distribute(self, group: PendingGroup, hosts: list[list[Member]], free_by_target: Mapping[int, Ints]) -> Sizes:
        """Adds the group's pods to the hosts in turn; returns those that no host takes."""
        used = [members[0].requests.copy() for members in hosts]
        left: Sizes = []
        start = 0
        for requests, pod in [(requests, pod) for requests, pods in group.sizes for pod in pods]:
            for step in range(len(hosts)):
                i = (start + step) % len(hosts)
                members = hosts[i]
                free = free_by_target[id(members[0].group)]
                fits = (free >= used[i] + requests).all(1).any()
                if fits and _is_satisfied(_merged_host_rules([*(m.group.host for m in members), group.host])):
                    members.append(Member(group, requests, pod))
                    used[i] += requests
                    start = i + 1
                    break
            else:
                left.append((requests, [pod]))
        return left

    def _free_for_both(self, target: PendingGroup, group: PendingGroup) -> Ints:
        """What one host holds that both groups may share: hosts x resources."""
        options, nodes = self._no_hosts()
        for of_target in self._feasibilities(target):
            for of_group in self._feasibilities(group):
                nodes |= of_target.nodes & of_group.nodes
                if (of_target.offerings & of_group.offerings).any():
                    options |= of_target.options & of_group.options
        return self._free(options, nodes)

    def _feasibilities(self, group: PendingGroup) -> list[Feasibility]:
        feasibilities = [
            self._checker.feasibility(
                alternative,
                group.pod_group.tolerations,
                group.host,
                tolerate_prefer_no_schedule=group.preferences.tolerate_prefer_no_schedule,
            )
            for _, alternative in group.alternatives
        ]
        return [f for f in feasibilities if f is not None]

    # --- bundles ---

    def _bundle(self, members: list[Member]) -> PendingGroup:
        """The members as one pod."""
        key = f"{_BUNDLE_PREFIX}{self._count}"
        self._count += 1
        self._members[key] = members
        groups = list({id(m.group): m.group for m in members}.values())
        first = groups[0]
        alternatives, tolerations = _merged_alternatives(groups, keep_conflicting=True)
        pod_group = with_fields(
            first.pod_group,
            tolerations=tolerations,
            ports=frozenset().union(*(g.pod_group.ports for g in groups)),
            mounted_volumes=frozenset().union(*(g.pod_group.mounted_volumes for g in groups)),
        )
        match: dict[int, int] = {}
        for member in members:
            for term, n in member.group.rules.match.items():
                match[term] = match.get(term, 0) + n
        rules = DomainRules(
            match=match,
            topology_spread={t: spread for g in groups for t, spread in g.rules.topology_spread.items()},
            anti_affinity=frozenset().union(*(g.rules.anti_affinity for g in groups)),
            required_anti_affinity=frozenset().union(*(g.rules.required_anti_affinity for g in groups)),
            affinity=frozenset().union(*(g.rules.affinity for g in groups)),
        )
        total = sum((m.requests for m in members), np.zeros_like(members[0].requests))
        host = _merged_host_rules([m.group.host for m in members])
        return PendingGroup(pod_group, first.preferences, alternatives, host, rules, (), [(total, [key])])


def _first_pod(group: PendingGroup) -> str:
    return group.sizes[0][1][0]


def _is_selected(target: PendingGroup, group: PendingGroup) -> bool:
    """Whether the group's host affinity selects the target's pods."""
    return all(t in target.host.match for t in group.host_affinity)


def _can_share_node(target: PendingGroup, group: PendingGroup) -> bool:
    return any(conflicting_key(intersect(a, b)) is None for _, a in target.alternatives for _, b in group.alternatives)


def _is_satisfied(rules: HostRules) -> bool:
    return all(rules.match.get(t, 0) <= cap for t, cap in rules.cap.items())


def _merged_host_rules(rules: Sequence[HostRules]) -> HostRules:
    """The host rules of all pods together."""
    match: dict[int, int] = {}
    cap: dict[int, int] = {}
    for of_pod in rules:
        for term, n in of_pod.match.items():
            match[term] = match.get(term, 0) + n
        for term, limit in of_pod.cap.items():
            cap[term] = min(cap.get(term, limit), limit)
    return HostRules(match, cap)


def _merged_alternatives(
    groups: Sequence[PendingGroup], *, keep_conflicting: bool = False
) -> tuple[list[tuple[int, Requirements]], tuple[Toleration, ...]]:
    """Node requirements of all groups together, by the first group's alternatives; tolerations that all have.

    ``keep_conflicting``: groups whose requirements conflict with those of all before are passed over.
    """
    first = groups[0]
    alternatives = list(first.alternatives)
    tolerations = first.pod_group.tolerations
    for group in groups[1:]:
        merged = [(i, intersect(a, b)) for i, a in alternatives for _, b in group.alternatives]
        compatible = [(i, requirements) for i, requirements in merged if conflicting_key(requirements) is None]
        alternatives = compatible or (alternatives if keep_conflicting else [])
        tolerations = tuple(t for t in tolerations if t in group.pod_group.tolerations)
    return alternatives, tolerations
