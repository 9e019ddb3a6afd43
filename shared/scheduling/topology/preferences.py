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
    from shared.scheduling.rules.pod_affinity import Spread, Term
    from shared.scheduling.topology.pod_groups import PodClass


@dataclass(frozen=True)
class Wishes:
    """What still counts: terms, the place of the preferred node requirement, and alternatives not tried yet."""

    alternatives: tuple[int, ...]
    node: int
    together: tuple[Term, ...]
    apart: tuple[Term, ...]
    spread: tuple[Spread, ...]
    soft: bool = False


def all_wishes(pods: PodClass) -> Wishes:
    """Everything that the class prefers."""
    return Wishes(
        tuple(range(len(pods.alternatives))),
        0,
        pods.preferred_together,
        pods.preferred_apart,
        pods.preferred_spread,
    )


def no_wishes(pods: PodClass) -> Wishes:
    """Nothing but what is required."""
    return Wishes(tuple(range(len(pods.alternatives))), len(pods.preferred_nodes), (), (), (), soft=True)


def requirements(pods: PodClass, wishes: Wishes) -> list[tuple[int, Requirements]]:
    """The alternatives that still count, each with the preferred node requirement that does."""
    found: list[tuple[int, Requirements]] = []
    for i in wishes.alternatives:
        met = pods.alternatives[i]
        if wishes.node < len(pods.preferred_nodes):
            met = both(met, pods.preferred_nodes[wishes.node])
        if contradiction(met) is None:
            found.append((i, met))
    return found


def give_up_one(  # noqa: PLR0911 (Karpenter's steps, one after the other)
    pods: PodClass, wishes: Wishes, tried: int | None
) -> Wishes | None:
    """What is left after one more step; None when nothing is left to give up."""
    others = tuple(i for i in wishes.alternatives if i != tried)
    if others and len(others) < len(wishes.alternatives):
        return replace(wishes, alternatives=others)
    again = replace(wishes, alternatives=tuple(range(len(pods.alternatives))))
    if wishes.together:
        return replace(again, together=wishes.together[1:])
    if wishes.apart:
        return replace(again, apart=wishes.apart[1:])
    if wishes.node < len(pods.preferred_nodes):
        return replace(again, node=wishes.node + 1)
    if wishes.spread:
        return replace(again, spread=wishes.spread[1:])
    if not wishes.soft:
        return replace(again, soft=True)
    return None
