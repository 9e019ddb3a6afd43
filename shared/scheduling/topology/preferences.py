"""Which of a class's preferences still count, and which is given up next.

A preference is a requirement until the pod finds no place with it. What no node could ever fulfil is left out from the
start; the rest goes one step a round, in Karpenter's order: required terms that are alternatives, preferred affinities,
preferred anti-affinities, preferred nodes (heaviest first), ScheduleAnyway spread, PreferNoSchedule taints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.scheduling.rules.requirements import Requirements, both, contradiction

if TYPE_CHECKING:
    from shared.scheduling.rules.pod_affinity import SpreadConstraint, TopologyTerm
    from shared.scheduling.topology.pod_groups import PodGroup


@dataclass(frozen=True)
class Preferences:
    """What still counts: terms, the place of the preferred node requirement, and alternatives not tried yet."""

    alternatives: tuple[int, ...]
    node_affinity: int
    affinity: tuple[TopologyTerm, ...]
    anti_affinity: tuple[TopologyTerm, ...]
    spread_constraints: tuple[SpreadConstraint, ...]
    tolerate_prefer_no_schedule: bool = False


def all_preferences(pods: PodGroup) -> Preferences:
    """Everything that the class prefers."""
    return Preferences(
        tuple(range(len(pods.alternatives))),
        0,
        pods.preferred_affinity,
        pods.preferred_anti_affinity,
        pods.preferred_spread_constraints,
    )


def no_preferences(pods: PodGroup) -> Preferences:
    """Nothing but what is required."""
    return Preferences(
        tuple(range(len(pods.alternatives))),
        len(pods.preferred_node_affinity),
        (),
        (),
        (),
        tolerate_prefer_no_schedule=True,
    )


def requirements(pods: PodGroup, preferences: Preferences) -> list[tuple[int, Requirements]]:
    """The alternatives that still count, each with the preferred node requirement that does."""
    found: list[tuple[int, Requirements]] = []
    for i in preferences.alternatives:
        met = pods.alternatives[i]
        if preferences.node_affinity < len(pods.preferred_node_affinity):
            met = both(met, pods.preferred_node_affinity[preferences.node_affinity])
        if contradiction(met) is None:
            found.append((i, met))
    return found


def relax(  # noqa: PLR0911 (Karpenter's steps, one after the other)
    pods: PodGroup, preferences: Preferences, tried: int | None
) -> Preferences | None:
    """What is left after one more step; None when nothing is left to give up."""
    others = tuple(i for i in preferences.alternatives if i != tried)
    if others and len(others) < len(preferences.alternatives):
        return replace(preferences, alternatives=others)
    again = replace(preferences, alternatives=tuple(range(len(pods.alternatives))))
    if preferences.affinity:
        return replace(again, affinity=preferences.affinity[1:])
    if preferences.anti_affinity:
        return replace(again, anti_affinity=preferences.anti_affinity[1:])
    if preferences.node_affinity < len(pods.preferred_node_affinity):
        return replace(again, node_affinity=preferences.node_affinity + 1)
    if preferences.spread_constraints:
        return replace(again, spread_constraints=preferences.spread_constraints[1:])
    if not preferences.tolerate_prefer_no_schedule:
        return replace(again, tolerate_prefer_no_schedule=True)
    return None
