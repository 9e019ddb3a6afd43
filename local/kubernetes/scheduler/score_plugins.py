"""The score plugins of kube-scheduler's default profile, with its weights, integers and normalization.

Source: ``pkg/scheduler/framework/plugins`` (noderesources, tainttoleration, nodeaffinity, podtopologyspread,
interpodaffinity) and ``apis/config/v1/default_plugins.go``. ImageLocality is left out: the nodes here report no images.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from local.kubernetes.scheduler.node_plugins import matches_node_affinity
from local.kubernetes.scheduler.pod_counts import DomainCounts, PodSelector, affinity_selector, with_own_labels
from local.kubernetes.scheduler.topology_plugins import is_eligible
from shared.api.labels import HOSTNAME, ZONE
from shared.api.quantity import CPU, MEMORY
from shared.api.selectors import SelectorError, matches_term
from shared.api.taints import PREFER_NO_SCHEDULE, tolerates
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.kubernetes.scheduler.cache import Cache
    from local.kubernetes.scheduler.node_info import NodeInfo
    from local.kubernetes.scheduler.pod_counts import AffinityTerm, MatchingPods
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from shared.api.kubernetes import NodeSelectorTerm, TopologySpreadConstraint

MAX_SCORE = 100
_TAINT_WEIGHT, _NODE_AFFINITY_WEIGHT, _POD_AFFINITY_WEIGHT, _SPREAD_WEIGHT = 3, 2, 2, 2
_DEFAULT_MAX_SKEWS = {HOSTNAME: 3, ZONE: 5}
"""The default constraints (``defaultingType: System``), all ScheduleAnyway."""


def least_allocated(signature: PodSignature, node_info: NodeInfo) -> int:
    """NodeResourcesFit's score: 100 for a free node, 0 for a full one; the mean over cpu and memory."""
    total = resources = 0
    for name, request in signature.requests_for_scoring.items():
        allocatable = node_info.allocatable.get(name, 0)
        if not allocatable:
            continue
        free = allocatable - node_info.requested_for_scoring[name] - request
        total += free * MAX_SCORE // allocatable if free > 0 else 0
        resources += 1
    return total // resources if resources else 0


def balanced_allocation(signature: PodSignature, node_info: NodeInfo) -> int:
    """NodeResourcesBalancedAllocation's score: 75 if the pod keeps the node's balance, more if it improves it.

    0 for a pod that requests neither cpu nor memory.
    """
    cpu, memory = signature.requests.get(CPU, 0), signature.requests.get(MEMORY, 0)
    if not cpu and not memory:
        return 0
    before = _balance(node_info, 0, 0)
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + _balance(node_info, cpu, memory) - before) // 2


def _balance(node_info: NodeInfo, cpu: int, memory: int) -> int:
    """100 if the same shares of cpu and memory are requested, with these requests added, down to 50."""
    shares = [
        min((node_info.requested[name] + request) / allocatable, 1.0)
        for name, request in ((CPU, cpu), (MEMORY, memory))
        if (allocatable := node_info.allocatable.get(name, 0))
    ]
    deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == len((CPU, MEMORY)) else 0.0
    return int((1 - deviation) * MAX_SCORE)


class NodeScores:
    """The scores of nodes for the pods with one signature."""

    def __init__(self, signature: PodSignature, cache: Cache, default_selectors: tuple[PodSelector, ...]) -> None:
        """Scores for this signature; ``default_selectors`` select the pods of its workload and its Services."""
        self._signature = signature
        self._resources: dict[str, int] = {}
        self._soft_taints: dict[str, int] = {}
        """The untolerated soft taints of nodes that have any."""
        self._affinity = InterPodAffinityScores(signature, cache)
        self._spreads = _soft_constraints(signature, cache, default_selectors)
        self._requires_all_keys = bool(signature.spec.topology_spread_constraints)

    def update_node(self, name: str, node_info: NodeInfo | None, *, is_feasible: bool) -> None:
        """A node changed, or was removed."""
        self._resources.pop(name, None)
        self._soft_taints.pop(name, None)
        self._affinity.update_node(name, node_info)
        for spread in self._spreads:
            spread.domain_counts.update_node(name, node_info)
        if node_info is None or not is_feasible:
            return
        self._resources[name] = least_allocated(self._signature, node_info) + balanced_allocation(
            self._signature, node_info
        )
        if count := _untolerated_soft_taints(self._signature, node_info):
            self._soft_taints[name] = count

    def scores(self, nodes: Sequence[NodeInfo]) -> list[int]:
        """The weighted sum of all plugins' scores for each of the feasible nodes."""
        totals = [self._resources[node.name] for node in nodes]
        if self._soft_taints:
            counts = [self._soft_taints.get(node.name, 0) for node in nodes]
            _add(totals, _TAINT_WEIGHT, [MAX_SCORE - score for score in normalized(counts)])
        if self._signature.preferred_node_affinity:
            weights = [_preferred_weight(self._signature, node) for node in nodes]
            _add(totals, _NODE_AFFINITY_WEIGHT, normalized(weights))
        if self._spreads:
            _add(totals, _SPREAD_WEIGHT, self._spread_scores(nodes))
        if self._affinity.has_terms:
            _add(totals, _POD_AFFINITY_WEIGHT, self._affinity.scores(nodes))
        return totals

    def _spread_scores(self, nodes: Sequence[NodeInfo]) -> list[int]:
        """PodTopologySpread's scores: nodes in domains with fewer matching pods get more."""
        keys = [spread.topology_key for spread in self._spreads]
        ignored = [self._requires_all_keys and not all(key in node.labels for key in keys) for node in nodes]
        counted = [node for node, is_ignored in zip(nodes, ignored, strict=True) if not is_ignored]
        if not counted:
            return [0] * len(nodes)
        terms = [spread.score_function(counted) for spread in self._spreads]
        raw = [int(sum(term(node) for term in terms) + 0.5) for node in counted]
        low, high = min(raw), max(raw)
        scores = iter([MAX_SCORE * (high + low - score) // high if high else MAX_SCORE for score in raw])
        return [0 if is_ignored else next(scores) for is_ignored in ignored]


class SoftSpread(Struct):
    """A ScheduleAnyway constraint with the pods that it counts."""

    topology_key: str
    max_skew: int
    by_node: Mapping[str, int]
    domain_counts: DomainCounts

    def score_function(self, nodes: Sequence[NodeInfo]) -> Callable[[NodeInfo], float]:
        """The constraint's part of a node's score, among these nodes: the lower the better."""
        key, by_node, plus = self.topology_key, self.by_node, self.max_skew - 1
        if key == HOSTNAME:
            weight = math.log(len(nodes) + 2)
            return lambda node: by_node.get(node.name, 0) * weight + plus if key in node.labels else 0.0
        weight = math.log(len({node.labels.get(key, "") for node in nodes}) + 2)
        domains = self.domain_counts.domains
        return lambda node: domains.get(node.labels[key], 0) * weight + plus if key in node.labels else 0.0


def _soft_constraints(
    signature: PodSignature, cache: Cache, default_selectors: tuple[PodSelector, ...]
) -> list[SoftSpread]:
    """The pod's own soft constraints; the default ones for a workload's pods that have no constraint at all."""
    own = signature.spec.topology_spread_constraints
    if not own:
        return [
            _default_spread(key, max_skew, signature, cache.matching_pods(default_selectors, exclude_terminating=True))
            for key, max_skew in _DEFAULT_MAX_SKEWS.items()
            if default_selectors
        ]
    soft = [constraint for constraint in own if constraint.when_unsatisfiable == "ScheduleAnyway"]
    return [_own_spread(constraint, [c.topology_key for c in soft], signature, cache) for constraint in soft]


def _default_spread(key: str, max_skew: int, signature: PodSignature, matching: MatchingPods) -> SoftSpread:
    counts = DomainCounts(key, matching.by_node, lambda node: matches_node_affinity(signature, node))
    return SoftSpread(key, max_skew, matching.by_node, counts)


def _own_spread(
    constraint: TopologySpreadConstraint, keys: list[str], signature: PodSignature, cache: Cache
) -> SoftSpread:
    selector = with_own_labels(constraint.label_selector, signature, constraint.match_label_keys, "In")
    selectors = (PodSelector(frozenset([signature.namespace]), selector),)
    matching = cache.matching_pods(selectors, exclude_terminating=True)

    eligible = partial(is_eligible, constraint=constraint, keys=keys, signature=signature)
    counts = DomainCounts(constraint.topology_key, matching.by_node, eligible)
    return SoftSpread(constraint.topology_key, constraint.max_skew, matching.by_node, counts)


class InterPodAffinityScores:
    """The pod's preferred terms, and the terms of existing pods that select the pod."""

    def __init__(self, signature: PodSignature, cache: Cache) -> None:
        self._signature = signature
        self._cache = cache
        self._terms_seen = 0
        self._counts: list[tuple[int, DomainCounts]] = []
        for sign, terms in ((1, signature.preferred_affinity), (-1, signature.preferred_anti_affinity)):
            for term in terms:
                selector = affinity_selector(term.pod_affinity_term, signature, cache.namespaces)
                by_node = cache.matching_pods((selector,), exclude_terminating=False).by_node
                counts = DomainCounts(term.pod_affinity_term.topology_key, by_node, lambda _node: True)
                self._counts.append((sign * term.weight, counts))

    @property
    def has_terms(self) -> bool:
        """Whether any term concerns the pod; takes in the terms of existing pods that are new."""
        terms = self._cache.scoring_terms
        for term in terms[self._terms_seen :]:
            if term.selector.selects(self._signature.namespace, self._signature.labels):
                self._counts.append((1, self._counted(term)))
        self._terms_seen = len(terms)
        return bool(self._counts)

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """A node changed, or was removed."""
        for _, counts in self._counts:
            counts.update_node(name, node_info)

    def scores(self, nodes: Sequence[NodeInfo]) -> list[int]:
        """0 for the least preferred of the nodes to 100 for the most preferred one."""
        raw = [sum(weight * counts.count_near(node) for weight, counts in self._counts) for node in nodes]
        low, high = min(raw), max(raw)
        if high == low:
            return [0] * len(nodes)
        return [int(MAX_SCORE * ((score - low) / (high - low))) for score in raw]

    def _counted(self, term: AffinityTerm) -> DomainCounts:
        counts = DomainCounts(term.topology_key, term.by_node, lambda _node: True)
        for name, node_info in self._cache.nodes.items():
            counts.update_node(name, node_info)
        return counts


def normalized(scores: list[int]) -> list[int]:
    """The scores scaled so that the highest one is 100; all 0 stay 0."""
    highest = max(scores)
    return [MAX_SCORE * score // highest for score in scores] if highest else scores


def _add(totals: list[int], weight: int, scores: list[int]) -> None:
    for i, score in enumerate(scores):
        totals[i] += weight * score


def _untolerated_soft_taints(signature: PodSignature, node_info: NodeInfo) -> int:
    tolerations = [t for t in signature.spec.tolerations if t.effect in {"", PREFER_NO_SCHEDULE}]
    taints = node_info.node.spec.taints
    return sum(taint.effect == PREFER_NO_SCHEDULE and not tolerates(tolerations, taint) for taint in taints)


def _preferred_weight(signature: PodSignature, node_info: NodeInfo) -> int:
    terms = signature.preferred_node_affinity
    return sum(term.weight for term in terms if _matches(term.preference, node_info))


def _matches(term: NodeSelectorTerm, node_info: NodeInfo) -> bool:
    try:
        return matches_term(term, node_info.labels, name=node_info.name)
    except SelectorError:
        return False
