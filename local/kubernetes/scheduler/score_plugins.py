"""Which of the possible places is best: room, balance, taints, preferences, soft spread.

kube-scheduler's default scoring in small (least allocated, balanced, its weights), in integers, so that equal worlds
give equal placements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.scheduler.pod_counts import Tally, pick_of
from local.kubernetes.scheduler.topology_plugins import Spread
from shared.api.selectors import SelectorError, matches_term
from shared.api.taints import PREFER_NO_SCHEDULE, untolerated

if TYPE_CHECKING:
    from local.kubernetes.scheduler.cache import Board
    from local.kubernetes.scheduler.node_info import Place
    from local.kubernetes.scheduler.pod_signature import Shape
    from shared.api.kubernetes import NodeSelectorTerm

_FULL = 100
_TAINTS, _AFFINITY, _PODS, _SPREAD = 3, 2, 2, 2
_UNREQUESTED = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What a pod that requests nothing is counted as when scoring, so that such pods spread too."""


def room(shape: Shape, place: Place) -> int:
    """0 to 200 for how much is left and how evenly, 300 more if no soft taint speaks against the node."""
    shares: list[int] = []
    for name, least in _UNREQUESTED.items():
        size = place.allocatable.get(name, 0)
        taken = place.requested[name] + max(shape.requests.get(name, 0), 0 if name in shape.requests else least)
        shares.append(min(taken * _FULL // size, _FULL) if size else _FULL)
    least_allocated = _FULL - sum(shares) // len(shares)
    balanced = _FULL - abs(shares[0] - shares[1]) // 2
    soft = untolerated(shape.spec.tolerations, place.node.spec.taints, effects={PREFER_NO_SCHEDULE})
    return least_allocated + balanced + (0 if soft else _TAINTS * _FULL)


class Liking:
    """What the shape prefers, summed for each place and brought to 0 to 100 a preference."""

    def __init__(self, shape: Shape, board: Board) -> None:
        self._shape = shape
        self._tallies: list[tuple[int, Tally]] = []
        for sign, terms in ((1, shape.likes_near), (-1, shape.likes_apart)):
            for term in terms:
                pick = pick_of(term.pod_affinity_term, shape, board.namespaces)
                on = board.group((pick,), living=False).on
                tally = Tally(term.pod_affinity_term.topology_key, on, lambda _place: True)
                self._tallies.append((sign * term.weight, tally))
        self._spreads = [
            Spread(constraint, shape, board)
            for constraint in shape.spec.topology_spread_constraints
            if constraint.when_unsatisfiable == "ScheduleAnyway"
        ]

    def refresh(self, name: str, place: Place | None) -> None:
        """A node changed, or is gone."""
        for _, tally in self._tallies:
            tally.refresh(name, place)
        for spread in self._spreads:
            spread.refresh(name, place)

    def of(self, places: list[Place]) -> dict[str, int]:
        """How much each place is liked; empty when the shape has no preferences."""
        totals: dict[str, int] = {}
        if self._shape.likes_nodes:
            _add(totals, _AFFINITY, {p.name: self._node_affinity(p) for p in places})
        if self._tallies:
            _add(totals, _PODS, {p.name: sum(w * t.around(p) for w, t in self._tallies) for p in places})
        for spread in self._spreads:
            _add(totals, _SPREAD, {p.name: -spread.tally.around(p) for p in places})
        return totals

    def _node_affinity(self, place: Place) -> int:
        return sum(term.weight for term in self._shape.likes_nodes if _matches(term.preference, place))


def _matches(term: NodeSelectorTerm, place: Place) -> bool:
    try:
        return matches_term(term, place.labels, name=place.name)
    except SelectorError:
        return False


def _add(totals: dict[str, int], weight: int, raw: dict[str, int]) -> None:
    """Bring raw scores to 0 to 100 and add them, weighted; equal scores say nothing."""
    low, high = min(raw.values()), max(raw.values())
    for name, value in raw.items():
        totals[name] = totals.get(name, 0) + (weight * _FULL * (value - low) // (high - low) if high > low else 0)
