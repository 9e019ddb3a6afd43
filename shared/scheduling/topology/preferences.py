"""The preferences of a pod group, and the order in which they are relaxed.

A preference counts as a requirement until the pods can't be scheduled with it. Preferences that no node can satisfy
are dropped at the start; the others are relaxed one at a time, in Karpenter's order: required node affinity terms that
are alternatives, preferred pod affinity, preferred pod anti-affinity, preferred node affinity (heaviest first),
ScheduleAnyway spread constraints, PreferNoSchedule taints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.base.struct import Struct
from shared.scheduling.rules.requirements import Requirements, conflicting_key, intersect

if TYPE_CHECKING:
    from shared.scheduling.rules.pod_affinity import SpreadConstraint, TopologyTerm
    from shared.scheduling.topology.pod_groups import PodGroup


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
        return replace(preferences, alternatives=untried)
    relaxed = _drop_one(preferences, len(group.preferred_node_affinity))
    if relaxed is None:
        return None
    return replace(relaxed, alternatives=tuple(range(len(group.alternatives))))


def _drop_one(preferences: Preferences, node_affinity_terms: int) -> Preferences | None:
    if preferences.affinity:
        return replace(preferences, affinity=preferences.affinity[1:])
    if preferences.anti_affinity:
        return replace(preferences, anti_affinity=preferences.anti_affinity[1:])
    if preferences.node_affinity < node_affinity_terms:
        return replace(preferences, node_affinity=preferences.node_affinity + 1)
    if preferences.spread_constraints:
        return replace(preferences, spread_constraints=preferences.spread_constraints[1:])
    if not preferences.tolerate_prefer_no_schedule:
        return replace(preferences, tolerate_prefer_no_schedule=True)
    return None
