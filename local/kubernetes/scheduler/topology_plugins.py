"""The checks for which other nodes matter: topology spread and pod affinity.

Source: kube-scheduler's plugins podtopologyspread and interpodaffinity, with their words. Each rule is bound to one
shape, learns of every node that changed, and then judges nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from local.kubernetes.scheduler.node_plugins import chosen_by_pod
from local.kubernetes.scheduler.pod_counts import Pick, Tally, pick_of, with_own_labels
from shared.api.taints import tolerates_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.scheduler.cache import Board
    from local.kubernetes.scheduler.node_info import Place
    from local.kubernetes.scheduler.pod_counts import Group, Guard
    from local.kubernetes.scheduler.pod_signature import Shape
    from shared.api.kubernetes import PodAffinityTerm, TopologySpreadConstraint

SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
NEAR = "node(s) didn't match pod affinity rules"
APART = "node(s) didn't match pod anti-affinity rules"
GUARDED = "node(s) didn't satisfy existing pods anti-affinity rules"


class Rule(Protocol):
    """One thing the pod asks of where others stand."""

    def refresh(self, name: str, place: Place | None) -> None:
        """A node changed, or is gone (None)."""
        ...

    def judge(self) -> None:
        """Get ready to answer for many nodes in this state."""
        ...

    def refusal(self, place: Place) -> str:
        """Why the pod can't go there; "" if it can."""
        ...


class Spread:
    """One constraint: no domain may have more than ``maxSkew`` matching pods above the emptiest."""

    def __init__(self, constraint: TopologySpreadConstraint, shape: Shape, board: Board) -> None:
        self.constraint = constraint
        selector = with_own_labels(constraint.label_selector, shape, constraint.match_label_keys, "In")
        pick = Pick(frozenset([shape.namespace]), selector)
        group = board.group((pick,), living=True)
        self._own = int(group.takes(shape))
        self._minimum = 0
        same = [
            c for c in shape.spec.topology_spread_constraints if c.when_unsatisfiable == constraint.when_unsatisfiable
        ]
        keys = [c.topology_key for c in same]

        def counts(place: Place) -> bool:
            if not all(key in place.labels for key in keys):
                return False
            if constraint.node_affinity_policy != "Ignore" and not chosen_by_pod(shape, place):
                return False
            return constraint.node_taints_policy != "Honor" or tolerates_all(
                shape.spec.tolerations, place.node.spec.taints
            )

        self.tally = Tally(constraint.topology_key, group.on, counts)

    def refresh(self, name: str, place: Place | None) -> None:
        """A node changed, or is gone."""
        self.tally.refresh(name, place)

    def judge(self) -> None:
        """Find the emptiest domain; fewer domains than ``minDomains`` count as an empty one."""
        domains = self.tally.domains
        scarce = len(domains) < (self.constraint.min_domains or 1)
        self._minimum = 0 if scarce else min(domains.values())

    def refusal(self, place: Place) -> str:
        """Whether one more there would be too many."""
        if self.constraint.topology_key not in place.labels:
            return SPREAD_LABEL
        skew = self.tally.around(place) + self._own - self._minimum
        return SPREAD if skew > self.constraint.max_skew else ""


class Near:
    """All required affinity terms together: there must be a pod that all of them mean, in each term's domain."""

    def __init__(self, terms: list[PodAffinityTerm], shape: Shape, board: Board) -> None:
        picks = tuple(pick_of(term, shape, board.namespaces) for term in terms)
        group: Group = board.group(picks, living=False)
        self._own = group.takes(shape)
        self._keys = [term.topology_key for term in terms]
        self._tallies = [Tally(key, group.on, lambda _place: True) for key in self._keys]
        self._first = False

    def refresh(self, name: str, place: Place | None) -> None:
        """A node changed, or is gone."""
        for tally in self._tallies:
            tally.refresh(name, place)

    def judge(self) -> None:
        """The first of a group that wants to be together may stand anywhere."""
        nobody = not any(count for tally in self._tallies for count in tally.domains.values())
        self._first = nobody and self._own

    def refusal(self, place: Place) -> str:
        """Whether the node's domains have such a pod."""
        if not all(key in place.labels for key in self._keys):
            return NEAR
        return "" if self._first or all(tally.around(place) for tally in self._tallies) else NEAR


class Apart:
    """No pod of the group in the node's domain: one required anti-affinity term, the pod's own or another's."""

    def __init__(self, holder: Group | Guard, topology_key: str, reason: str) -> None:
        self._tally = Tally(topology_key, holder.on, lambda _place: True)
        self._reason = reason

    def refresh(self, name: str, place: Place | None) -> None:
        """A node changed, or is gone."""
        self._tally.refresh(name, place)

    def judge(self) -> None:
        """Nothing to get ready."""

    def refusal(self, place: Place) -> str:
        """Whether anyone is there."""
        return self._reason if self._tally.around(place) else ""


def own_rules(shape: Shape, board: Board) -> list[Rule]:
    """What the pod itself asks, in the scheduler's order: spread first, then affinity, then anti-affinity."""
    rules: list[Rule] = [
        Spread(constraint, shape, board)
        for constraint in shape.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "DoNotSchedule"
    ]
    if shape.near:
        rules.append(Near(shape.near, shape, board))
    rules.extend(
        Apart(board.group((pick_of(term, shape, board.namespaces),), living=False), term.topology_key, APART)
        for term in shape.apart
    )
    return rules


def guards_against(shape: Shape, guards: Iterable[Guard]) -> list[Rule]:
    """What pods that are there ask of pods of this shape."""
    return [
        Apart(guard, guard.topology_key, GUARDED) for guard in guards if guard.pick.takes(shape.namespace, shape.labels)
    ]
