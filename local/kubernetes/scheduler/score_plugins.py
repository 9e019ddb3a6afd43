"""Score plugins: resources, soft taints, preferred affinity and soft topology spread.

A short form of kube-scheduler's default scoring (least allocated, balanced allocation, its weights), in integers, so
that equal clusters give equal results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.scheduler.pod_counts import DomainCounts, affinity_selector
from local.kubernetes.scheduler.topology_plugins import PodTopologySpread
from shared.api.selectors import SelectorError, matches_term
from shared.api.taints import PREFER_NO_SCHEDULE, untolerated

if TYPE_CHECKING:
    from local.kubernetes.scheduler.cache import Cache
    from local.kubernetes.scheduler.node_info import NodeInfo
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from shared.api.kubernetes import NodeSelectorTerm

_MAX_SCORE = 100
_TAINT_WEIGHT, _NODE_AFFINITY_WEIGHT, _POD_AFFINITY_WEIGHT, _SPREAD_WEIGHT = 3, 2, 2, 2
_DEFAULT_REQUESTS = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What a pod without requests counts as when scoring, so that such pods are spread too."""


def node_score(signature: PodSignature, node_info: NodeInfo) -> int:
    """0 to 200 for free and balanced resources, and 300 more if the pod tolerates every soft taint of the node."""
    shares: list[int] = []
    for name, default in _DEFAULT_REQUESTS.items():
        allocatable = node_info.allocatable.get(name, 0)
        request = max(signature.requests.get(name, 0), 0 if name in signature.requests else default)
        used = node_info.requested[name] + request
        shares.append(min(used * _MAX_SCORE // allocatable, _MAX_SCORE) if allocatable else _MAX_SCORE)
    least_allocated = _MAX_SCORE - sum(shares) // len(shares)
    balanced = _MAX_SCORE - abs(shares[0] - shares[1]) // 2
    taint = untolerated(signature.spec.tolerations, node_info.node.spec.taints, effects={PREFER_NO_SCHEDULE})
    return least_allocated + balanced + (0 if taint else _TAINT_WEIGHT * _MAX_SCORE)


class PreferenceScores:
    """The scores for the pod's preferences, each normalized to 0 to 100 over the nodes and weighted."""

    def __init__(self, signature: PodSignature, cache: Cache) -> None:
        self._signature = signature
        self._pod_affinity: list[tuple[int, DomainCounts]] = []
        for sign, terms in ((1, signature.preferred_affinity), (-1, signature.preferred_anti_affinity)):
            for term in terms:
                selector = affinity_selector(term.pod_affinity_term, signature, cache.namespaces)
                by_node = cache.matching_pods((selector,), exclude_terminating=False).by_node
                counts = DomainCounts(term.pod_affinity_term.topology_key, by_node, lambda _node: True)
                self._pod_affinity.append((sign * term.weight, counts))
        self._spreads = [
            PodTopologySpread(constraint, signature, cache)
            for constraint in signature.spec.topology_spread_constraints
            if constraint.when_unsatisfiable == "ScheduleAnyway"
        ]

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """A node changed, or was removed."""
        for _, counts in self._pod_affinity:
            counts.update_node(name, node_info)
        for spread in self._spreads:
            spread.update_node(name, node_info)

    def scores(self, nodes: list[NodeInfo]) -> dict[str, int]:
        """The score of each node by its name; empty when the pod has no preferences."""
        totals: dict[str, int] = {}
        if self._signature.preferred_node_affinity:
            _add(totals, _NODE_AFFINITY_WEIGHT, {node.name: self._node_affinity(node) for node in nodes})
        if self._pod_affinity:
            raw = {n.name: sum(weight * counts.count_near(n) for weight, counts in self._pod_affinity) for n in nodes}
            _add(totals, _POD_AFFINITY_WEIGHT, raw)
        for spread in self._spreads:
            _add(totals, _SPREAD_WEIGHT, {node.name: -spread.domain_counts.count_near(node) for node in nodes})
        return totals

    def _node_affinity(self, node_info: NodeInfo) -> int:
        terms = self._signature.preferred_node_affinity
        return sum(term.weight for term in terms if _matches(term.preference, node_info))


def _matches(term: NodeSelectorTerm, node_info: NodeInfo) -> bool:
    try:
        return matches_term(term, node_info.labels, name=node_info.name)
    except SelectorError:
        return False


def _add(totals: dict[str, int], weight: int, raw: dict[str, int]) -> None:
    """Normalize raw scores to 0 to 100, weight and add them; equal scores add nothing."""
    low, high = min(raw.values()), max(raw.values())
    for name, value in raw.items():
        normalized = weight * _MAX_SCORE * (value - low) // (high - low) if high > low else 0
        totals[name] = totals.get(name, 0) + normalized
