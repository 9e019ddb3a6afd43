"""The pods that a selector selects, counted by node and by topology domain, and updated with every change.

PodTopologySpread and InterPodAffinity need these counts. kube-scheduler counts all pods for every pod that it
schedules; updated counts are the same and allow clusters with thousands of pods.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import LabelSelector, LabelSelectorRequirement
from shared.api.selectors import SelectorError, matches
from shared.base.struct import MutableStruct, Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from local.kubernetes.scheduler.node_info import NodeInfo, PodInfo
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from shared.api.kubernetes import PodAffinityTerm


class PodSelector(Struct, eq=False):
    """A label selector for pods of some namespaces (None: of all)."""

    namespaces: frozenset[str] | None
    label_selector: LabelSelector | None

    @property
    def key(self) -> bytes:
        """Equal for equal selectors."""
        names = None if self.namespaces is None else sorted(self.namespaces)
        return msgspec.json.encode((names, self.label_selector))

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod; an invalid label selector selects none."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        try:
            return matches(self.label_selector, labels)
        except SelectorError:
            return False


def affinity_selector(
    term: PodAffinityTerm, signature: PodSignature, namespaces: Mapping[str, Mapping[str, str]]
) -> PodSelector:
    """The pods that an affinity term of a pod with this signature selects; ``namespaces`` has each one's labels.

    Listed and selected namespaces are joined; without either, the term is for the pod's own namespace.
    ``matchLabelKeys`` and ``mismatchLabelKeys`` become expressions with the pod's own values.
    """
    selected: frozenset[str] | None = frozenset(term.namespaces)
    if term.namespace_selector is not None:
        by_labels = PodSelector(None, term.namespace_selector)
        matching = (name for name, labels in namespaces.items() if by_labels.selects(name, labels))
        selected = frozenset([*term.namespaces, *matching])
        if term.namespace_selector == LabelSelector():
            selected = None
    elif not term.namespaces:
        selected = frozenset([signature.namespace])
    selector = with_own_labels(term.label_selector, signature, term.match_label_keys, "In")
    return PodSelector(selected, with_own_labels(selector, signature, term.mismatch_label_keys, "NotIn"))


def with_own_labels(
    selector: LabelSelector | None, signature: PodSignature, keys: Sequence[str], operator: str
) -> LabelSelector | None:
    """The selector with an expression for each of the keys that the pod has; other keys are ignored."""
    own = [
        LabelSelectorRequirement(key=key, operator=operator, values=[signature.labels[key]])
        for key in keys
        if key in signature.labels
    ]
    if selector is None or not own:
        return selector
    return with_fields(selector, match_expressions=[*selector.match_expressions, *own])


class MatchingPods(MutableStruct):
    """The pods that all of the selectors select, counted by node."""

    selectors: tuple[PodSelector, ...]
    exclude_terminating: bool
    by_node: Counter[str] = msgspec.field(default_factory=Counter)
    _selected: dict[bytes, bool] = {}

    def selects(self, signature: PodSignature) -> bool:
        """Whether pods with this signature are selected."""
        selected = self._selected.get(signature.key)
        if selected is None:
            selected = self._selected[signature.key] = all(
                selector.selects(signature.namespace, signature.labels) for selector in self.selectors
            )
        return selected

    def count(self, node: str, pod: PodInfo, change: int) -> None:
        """Count a pod that is added to (+1) or removed from (-1) a node."""
        if not (self.exclude_terminating and pod.terminating) and self.selects(pod.signature):
            self.by_node[node] += change


class AffinityTerm(MutableStruct):
    """An affinity or anti-affinity term of pods on nodes, which concerns the pods that it selects.

    ``by_node`` counts the pods with a required anti-affinity term, or sums the weights of terms that score: a required
    affinity term counts 1, a preferred one its weight, a preferred anti-affinity term its negative weight.
    """

    selector: PodSelector
    topology_key: str
    by_node: Counter[str] = msgspec.field(default_factory=Counter)


class _Terms(MutableStruct):
    """Terms by selector and topology key, in order of appearance; none is ever removed."""

    terms: list[AffinityTerm] = []
    _by_key: dict[tuple[bytes, str], AffinityTerm] = {}

    def term(self, term: PodAffinityTerm, selector: PodSelector) -> AffinityTerm:
        key = (selector.key, term.topology_key)
        known = self._by_key.get(key)
        if known is None:
            known = self._by_key[key] = AffinityTerm(selector, term.topology_key)
            self.terms.append(known)
        return known


class PodCounts:
    """The counts for all selectors and affinity terms that were requested."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._namespaces = namespaces
        self._matching: dict[tuple[tuple[bytes, ...], bool], MatchingPods] = {}
        self._anti_affinity = _Terms()
        self._scoring = _Terms()
        self._terms_of_signature: dict[bytes, list[tuple[AffinityTerm, int]]] = {}

    @property
    def anti_affinity_terms(self) -> list[AffinityTerm]:
        """The required anti-affinity terms, in order of appearance; none is ever removed."""
        return self._anti_affinity.terms

    @property
    def scoring_terms(self) -> list[AffinityTerm]:
        """The terms that score, in order of appearance; none is ever removed."""
        return self._scoring.terms

    def matching_pods(
        self, selectors: tuple[PodSelector, ...], *, exclude_terminating: bool, nodes: Iterable[NodeInfo]
    ) -> MatchingPods:
        """The pods that the selectors select; new selectors are counted over the nodes."""
        key = (tuple(selector.key for selector in selectors), exclude_terminating)
        matching = self._matching.get(key)
        if matching is None:
            matching = self._matching[key] = MatchingPods(selectors, exclude_terminating)
            for node_info in nodes:
                for pod in node_info.pods.values():
                    matching.count(node_info.name, pod, 1)
        return matching

    def count(self, node: str, pod: PodInfo, change: int) -> None:
        """Count a pod that is added to (+1) or removed from (-1) a node."""
        for matching in self._matching.values():
            matching.count(node, pod, change)
        if pod.signature.has_pod_affinity:
            for term, weight in self._weighted_terms(pod.signature):
                term.by_node[node] += change * weight

    def _weighted_terms(self, signature: PodSignature) -> list[tuple[AffinityTerm, int]]:
        """The terms of pods with this signature, and how much each pod counts for them."""
        terms = self._terms_of_signature.get(signature.key)
        if terms is None:
            scoring = [(term, 1) for term in signature.required_affinity]
            scoring += [(preferred.pod_affinity_term, preferred.weight) for preferred in signature.preferred_affinity]
            scoring += [
                (preferred.pod_affinity_term, -preferred.weight) for preferred in signature.preferred_anti_affinity
            ]
            terms = [(self._term(self._anti_affinity, term, signature), 1) for term in signature.required_anti_affinity]
            terms += [(self._term(self._scoring, term, signature), weight) for term, weight in scoring]
            self._terms_of_signature[signature.key] = terms
        return terms

    def _term(self, terms: _Terms, term: PodAffinityTerm, signature: PodSignature) -> AffinityTerm:
        return terms.term(term, affinity_selector(term, signature, self._namespaces))


class DomainCounts:
    """Counts by node, summed over the domains of a topology key, for the nodes that are eligible."""

    def __init__(self, topology_key: str, by_node: Mapping[str, int], eligible: Callable[[NodeInfo], bool]) -> None:
        self._key = topology_key
        self._by_node = by_node
        self._eligible = eligible
        self._counted: dict[str, tuple[str, int]] = {}
        self._nodes: Counter[str] = Counter()
        self.domains: dict[str, int] = {}
        """Every domain with an eligible node, and its number of pods."""

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """Count a node again; None: it was removed."""
        before = self._counted.pop(name, None)
        if before is not None:
            domain, count = before
            self.domains[domain] -= count
            self._nodes[domain] -= 1
            if not self._nodes[domain]:
                del self._nodes[domain], self.domains[domain]
        if node_info is None or self._key not in node_info.labels or not self._eligible(node_info):
            return
        domain, count = node_info.labels[self._key], self._by_node[name]
        self._counted[name] = (domain, count)
        self._nodes[domain] += 1
        self.domains[domain] = self.domains.get(domain, 0) + count

    def count_near(self, node_info: NodeInfo) -> int:
        """The pods in the node's domain; 0 for a node without one."""
        domain = node_info.labels.get(self._key)
        return 0 if domain is None else self.domains.get(domain, 0)
