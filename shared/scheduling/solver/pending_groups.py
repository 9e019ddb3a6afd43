"""Pending groups: pod groups with the preferences that still count, and their rules by numbered terms.

A preference counts as a requirement until the pods can't be scheduled with it. Preferences that no node can satisfy
are dropped at the start; the others are relaxed one at a time, in Karpenter's order: required node affinity terms that
are alternatives, preferred pod affinity, preferred pod anti-affinity, preferred node affinity (heaviest first),
ScheduleAnyway spread constraints, PreferNoSchedule taints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.api.labels import HOSTNAME
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.scheduling.rules.requirements import Requirements, conflicting_key, intersect
from shared.scheduling.topology.domain_counts import DomainRules, TopologySpread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.scheduling.decision import SchedulingPolicies
    from shared.scheduling.rules.pod_affinity import SpreadConstraint, TopologyTerm
    from shared.scheduling.solver.preferred_hosts import PreferredHosts
    from shared.scheduling.topology.domain_counts import HostCounts, HostRules
    from shared.scheduling.topology.feasibility import Feasibility, FeasibilityChecker, Pins
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]
    Sizes = list[tuple[Ints, list[str]]]


class Preferences(Struct):
    """The preferences that still count.

    ``alternatives`` are indices of the group's node requirements, ``node_affinity`` the index of the preferred node
    affinity term that counts; beyond the last, none does.
    """

    alternatives: tuple[int, ...]
    node_affinity: int
    affinity: tuple[TopologyTerm, ...]
    anti_affinity: tuple[TopologyTerm, ...]
    spread_constraints: tuple[SpreadConstraint, ...]
    tolerate_prefer_no_schedule: bool = False


def all_preferences(group: PodGroup) -> Preferences:
    """All preferences of the group."""
    return Preferences(
        alternatives=tuple(range(len(group.alternatives))),
        node_affinity=0,
        affinity=group.preferred_affinity,
        anti_affinity=group.preferred_anti_affinity,
        spread_constraints=group.preferred_spread_constraints,
    )


def no_preferences(group: PodGroup) -> Preferences:
    """Requirements only."""
    return Preferences(
        alternatives=tuple(range(len(group.alternatives))),
        node_affinity=len(group.preferred_node_affinity),
        affinity=(),
        anti_affinity=(),
        spread_constraints=(),
        tolerate_prefer_no_schedule=True,
    )


def requirements(group: PodGroup, preferences: Preferences) -> list[tuple[int, Requirements]]:
    """The alternatives that still count, by index, each with the preferred node affinity that counts."""
    remaining: list[tuple[int, Requirements]] = []
    for i in preferences.alternatives:
        alternative = group.alternatives[i]
        if preferences.node_affinity < len(group.preferred_node_affinity):
            alternative = intersect(alternative, group.preferred_node_affinity[preferences.node_affinity])
        if conflicting_key(alternative) is None:
            remaining.append((i, alternative))
    return remaining


def relax(group: PodGroup, preferences: Preferences, tried_alternative: int | None) -> Preferences | None:
    """The preferences after the next step; None if there is nothing left to relax.

    The alternative that was tried is dropped first; once all were tried, a preference is dropped and all count again.
    """
    untried = tuple(i for i in preferences.alternatives if i != tried_alternative)
    if untried and len(untried) < len(preferences.alternatives):
        return with_fields(preferences, alternatives=untried)
    relaxed = _drop_one(preferences, len(group.preferred_node_affinity))
    if relaxed is None:
        return None
    return with_fields(relaxed, alternatives=tuple(range(len(group.alternatives))))


def _drop_one(preferences: Preferences, node_affinity_terms: int) -> Preferences | None:
    if preferences.affinity:
        return with_fields(preferences, affinity=preferences.affinity[1:])
    if preferences.anti_affinity:
        return with_fields(preferences, anti_affinity=preferences.anti_affinity[1:])
    if preferences.node_affinity < node_affinity_terms:
        return with_fields(preferences, node_affinity=preferences.node_affinity + 1)
    if preferences.spread_constraints:
        return with_fields(preferences, spread_constraints=preferences.spread_constraints[1:])
    if not preferences.tolerate_prefer_no_schedule:
        return with_fields(preferences, tolerate_prefer_no_schedule=True)
    return None


class PendingGroup(MutableStruct):
    """A pod group with the preferences that still count, and its unscheduled pods by size, largest first.

    ``host_affinity`` are the host terms that its pods require on their host. ``tried`` is the index of the node
    affinity alternative that was chosen last. ``launchable_alternatives``: where alternatives lead to different nodes,
    the feasibilities of all of them, cheapest first.
    """

    pod_group: PodGroup
    preferences: Preferences
    alternatives: Sequence[tuple[int, Requirements]]
    host: HostRules
    rules: DomainRules
    host_affinity: tuple[int, ...]
    sizes: Sizes
    tried: int | None = None
    feasibilities: dict[Pins, Feasibility | None] = msgspec.field(default_factory=dict)
    launchable_alternatives: dict[Pins, list[Feasibility]] = msgspec.field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many pods are unscheduled."""
        return sum(len(pods) for _, pods in self.sizes)


class PendingGroups:
    """Makes pending groups of a run's pod groups; all their terms are numbered first.

    ``one_host_each``: preferences for different hosts count to the letter; see solver/preferred_hosts.py.
    """

    def __init__(
        self,
        checker: FeasibilityChecker,
        topology: Topology,
        groups: Sequence[tuple[PodGroup, list[SizedPods]]],
        policies: SchedulingPolicies,
        host_counts: HostCounts,
        *,
        one_host_each: bool = False,
    ) -> None:
        self._checker = checker
        self._host_counts = host_counts
        self._one_host_each = one_host_each
        self._limits_by_preference: PreferredHosts | None = None
        self._topology = topology
        self._groups = groups
        self._ignores_preferences = policies.preference_policy == "Ignore"
        self._column_of = {name: i for i, name in enumerate(checker.launch_options.resources)}
        for group, _ in groups:
            self._number_terms(group)

    @property
    def pod_count(self) -> int:
        """How many pods the run is about."""
        return sum(len(sized.pods) for _, sizes in self._groups for sized in sizes)

    @property
    def shares_hosts(self) -> bool:
        """Whether pods that prefer different hosts may share some."""
        return self._limits_by_preference is not None and self._limits_by_preference.shares_hosts

    def initial(self) -> list[PendingGroup]:
        """All groups with all preferences that any node can satisfy."""
        return [
            self.group(group, self._satisfiable(group), [(self._vector(s), list(s.pods)) for s in sizes])
            for group, sizes in self._groups
        ]

    def group(self, pods: PodGroup, preferences: Preferences, sizes: Sizes) -> PendingGroup:
        """A pod group with these preferences and pods."""
        anti_affinity = (*pods.anti_affinity, *preferences.anti_affinity)
        affinity = (*pods.affinity, *preferences.affinity)
        spread = (*pods.spread_constraints, *preferences.spread_constraints)
        rules = DomainRules(
            match=self._topology.domain_terms.matching(pods.namespace, pods.labels),
            topology_spread=self._topology_spread(pods, spread),
            anti_affinity=self._domain_terms(anti_affinity),
            required_anti_affinity=self._domain_terms(pods.anti_affinity),
            affinity=self._domain_terms(affinity),
        )
        host = self._host_rules(pods, preferences, sizes)
        host_affinity = tuple(sorted(self._topology.host_term(t) for t in affinity if t.topology_key == HOSTNAME))
        ordered = sorted(sizes, key=lambda s: ([-int(x) for x in s[0]], s[1][0]))
        return PendingGroup(pods, preferences, requirements(pods, preferences), host, rules, host_affinity, ordered)

    def _host_rules(self, pods: PodGroup, preferences: Preferences, sizes: Sizes) -> HostRules:
        """The rules over hosts, with the preferences that still count and may limit how many pods share a host."""
        required = self._topology.host_rules(pods)
        wanted = self._topology.host_limits(required.match, preferences.anti_affinity, preferences.spread_constraints)
        if not wanted:
            return required
        limits = self._preferred_hosts().limits(wanted, required.match, [requests for requests, _ in sizes])
        return with_fields(required, preferred=limits)

    def _preferred_hosts(self) -> PreferredHosts:
        if self._limits_by_preference is None:
            from shared.scheduling.solver.preferred_hosts import PreferredHosts  # noqa: PLC0415 (few pods prefer hosts)

            self._limits_by_preference = PreferredHosts(
                self._topology,
                self._checker.launch_options,
                self._host_counts,
                self._groups,
                strict=self._one_host_each,
            )
        return self._limits_by_preference

    def _topology_spread(self, pods: PodGroup, spread: Sequence[SpreadConstraint]) -> dict[int, TopologySpread]:
        by_term: dict[int, TopologySpread] = {}
        for constraint in spread:
            if constraint.term.topology_key != HOSTNAME:
                term = self._topology.spread_term(constraint, pods.counted_alternatives, pods.tolerations)
                topology_spread = self._topology.topology_spread(
                    constraint, pods.counted_alternatives, pods.tolerations
                )
                by_term[term] = topology_spread.strictest(by_term.get(term))
        return by_term

    def _domain_terms(self, terms: Sequence[TopologyTerm]) -> frozenset[int]:
        return frozenset(self._topology.domain_term(t) for t in terms if t.topology_key != HOSTNAME)

    def _number_terms(self, pods: PodGroup) -> None:
        """Numbers every term that the group may ever have a rule about."""
        for term in (*pods.anti_affinity, *pods.preferred_anti_affinity, *pods.affinity, *pods.preferred_affinity):
            _ = self._topology.host_term(term) if term.topology_key == HOSTNAME else self._topology.domain_term(term)
        for spread in (*pods.spread_constraints, *pods.preferred_spread_constraints):
            if spread.term.topology_key == HOSTNAME:
                self._topology.host_term(spread.term)
            else:
                self._topology.spread_term(spread, pods.counted_alternatives, pods.tolerations)

    def _vector(self, sized: SizedPods) -> Ints:
        requests = np.zeros(len(self._column_of), np.int64)
        for name, amount in sized.requests.items():
            requests[self._column_of[name]] = amount
        return requests

    # --- preferences that no node can satisfy are dropped at once ---

    def _satisfiable(self, pods: PodGroup) -> Preferences:
        """The preferences that some node could satisfy."""
        if self._ignores_preferences:
            return no_preferences(pods)
        preferences = all_preferences(pods)
        while preferences.node_affinity < len(pods.preferred_node_affinity) and not self._is_feasible(
            pods, preferences
        ):
            preferences = with_fields(preferences, node_affinity=preferences.node_affinity + 1)
        preferences = with_fields(
            preferences,
            affinity=tuple(t for t in preferences.affinity if self._selects_any_pod(t)),
            spread_constraints=tuple(
                s
                for s in preferences.spread_constraints
                if s.term.topology_key == HOSTNAME
                or self._topology.eligible_domains(s, pods.counted_alternatives, pods.tolerations)
            ),
        )
        if not self._is_feasible(pods, preferences):
            preferences = with_fields(preferences, tolerate_prefer_no_schedule=True)
        return preferences

    def _is_feasible(self, pods: PodGroup, preferences: Preferences) -> bool:
        """Whether any launch option or existing node satisfies the node affinity and taint preferences."""
        for _, alternative in requirements(pods, preferences):
            options, _, _, nodes = self._checker.check(
                alternative, pods.tolerations, tolerate_prefer_no_schedule=preferences.tolerate_prefer_no_schedule
            )
            if options.any() or nodes.any():
                return True
        return False

    def _selects_any_pod(self, term: TopologyTerm) -> bool:
        if any(term.matches(group.namespace, group.labels) for group, _ in self._groups):
            return True
        return any(
            term.matches(pod.metadata.namespace or "default", pod.metadata.labels)
            for node in self._checker.state_nodes.nodes
            for pod in node.pods
        )
