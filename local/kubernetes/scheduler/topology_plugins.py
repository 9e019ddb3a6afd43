"""Filter plugins for which pods on other nodes matter: PodTopologySpread and InterPodAffinity.

Source: kube-scheduler's plugins podtopologyspread and interpodaffinity, with their messages. A plugin is made for one
pod signature, is updated with every node that changes, and then filters nodes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from local.kubernetes.scheduler.node_plugins import matches_node_affinity
from local.kubernetes.scheduler.pod_counts import DomainCounts, PodSelector, affinity_selector, with_own_labels
from shared.api.taints import tolerates_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from local.kubernetes.scheduler.cache import Cache
    from local.kubernetes.scheduler.node_info import NodeInfo, PodInfo
    from local.kubernetes.scheduler.pod_counts import AffinityTerm, MatchingPods
    from local.kubernetes.scheduler.pod_signature import PodSignature
    from shared.api.kubernetes import PodAffinityTerm, TopologySpreadConstraint

TOPOLOGY_SPREAD = "node(s) didn't match pod topology spread constraints"
TOPOLOGY_SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


class TopologyPlugin(Protocol):
    """A filter plugin for one pod signature."""

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """A node changed, or was removed (None)."""
        ...

    def pre_filter(self) -> None:
        """Compute what is the same for all nodes in the present state."""
        ...

    def filter(self, node_info: NodeInfo, nominated: Sequence[PodInfo] = ()) -> str:
        """Why the node is rejected, as if the nominated pods were on it too; "" if it is not."""
        ...


def is_eligible(
    node_info: NodeInfo, *, constraint: TopologySpreadConstraint, keys: Sequence[str], signature: PodSignature
) -> bool:
    """Whether the node's domain counts for a constraint of the pod; ``keys`` are the labels that it must have."""
    if not all(key in node_info.labels for key in keys):
        return False
    if constraint.node_affinity_policy != "Ignore" and not matches_node_affinity(signature, node_info):
        return False
    return constraint.node_taints_policy != "Honor" or tolerates_all(
        signature.spec.tolerations, node_info.node.spec.taints
    )


class PodTopologySpread:
    """One constraint: no domain may have more than ``maxSkew`` matching pods above the minimum."""

    def __init__(self, constraint: TopologySpreadConstraint, signature: PodSignature, cache: Cache) -> None:
        self.constraint = constraint
        label_selector = with_own_labels(constraint.label_selector, signature, constraint.match_label_keys, "In")
        selector = PodSelector(frozenset([signature.namespace]), label_selector)
        matching = cache.matching_pods((selector,), exclude_terminating=True)
        self._matching = matching
        self._self_match = int(matching.selects(signature))
        self._minimum = 0
        self._has_too_few_domains = False
        keys = [
            c.topology_key
            for c in signature.spec.topology_spread_constraints
            if c.when_unsatisfiable == constraint.when_unsatisfiable
        ]

        eligible = partial(is_eligible, constraint=constraint, keys=keys, signature=signature)
        self.domain_counts = DomainCounts(constraint.topology_key, matching.by_node, eligible)

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """A node changed, or was removed."""
        self.domain_counts.update_node(name, node_info)

    def pre_filter(self) -> None:
        """Compute the minimum over domains; it is 0 with fewer than ``minDomains`` domains."""
        domains = self.domain_counts.domains
        self._has_too_few_domains = len(domains) < (self.constraint.min_domains or 1)
        self._minimum = 0 if self._has_too_few_domains else min(domains.values())

    def filter(self, node_info: NodeInfo, nominated: Sequence[PodInfo] = ()) -> str:
        """Reject a node whose domain would exceed ``maxSkew`` with this pod."""
        domain = node_info.labels.get(self.constraint.topology_key)
        if domain is None:
            return TOPOLOGY_SPREAD_LABEL
        minimum = self._minimum
        count = self.domain_counts.count_near(node_info)
        if added := sum(self._matching.selects(pod.signature) for pod in nominated):
            count += added
            if not self._has_too_few_domains and domain in self.domain_counts.domains:
                minimum = min({**self.domain_counts.domains, domain: count}.values())
        return TOPOLOGY_SPREAD if count + self._self_match - minimum > self.constraint.max_skew else ""


class InterPodAffinity:
    """All required affinity terms: each term's domain must have a pod that all of the terms select."""

    def __init__(self, terms: list[PodAffinityTerm], signature: PodSignature, cache: Cache) -> None:
        selectors = tuple(affinity_selector(term, signature, cache.namespaces) for term in terms)
        matching = cache.matching_pods(selectors, exclude_terminating=False)
        self._self_match = matching.selects(signature)
        self._keys = [term.topology_key for term in terms]
        self._domain_counts = [DomainCounts(key, matching.by_node, lambda _node: True) for key in self._keys]
        self._is_first = False

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """A node changed, or was removed."""
        for domain_counts in self._domain_counts:
            domain_counts.update_node(name, node_info)

    def pre_filter(self) -> None:
        """The first pod of a group with affinity to itself may go to any domain."""
        no_match = not any(count for counts in self._domain_counts for count in counts.domains.values())
        self._is_first = no_match and self._self_match

    def filter(self, node_info: NodeInfo, nominated: Sequence[PodInfo] = ()) -> str:  # noqa: ARG002 (as all plugins)
        """Reject a node without a matching pod in its domains; nominated pods don't help."""
        if not all(key in node_info.labels for key in self._keys):
            return AFFINITY
        return "" if self._is_first or all(counts.count_near(node_info) for counts in self._domain_counts) else AFFINITY


class InterPodAntiAffinity:
    """One required anti-affinity term of the pod: no pod that it selects is in the node's domain."""

    def __init__(self, matching: MatchingPods, topology_key: str) -> None:
        self._matching = matching
        self._key = topology_key
        self._domain_counts = DomainCounts(topology_key, matching.by_node, lambda _node: True)

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """A node changed, or was removed."""
        self._domain_counts.update_node(name, node_info)

    def pre_filter(self) -> None:
        """Nothing to compute."""

    def filter(self, node_info: NodeInfo, nominated: Sequence[PodInfo] = ()) -> str:
        """Reject a node with a selected pod in its domain."""
        if self._key not in node_info.labels:
            return ""
        selected = self._domain_counts.count_near(node_info) or any(
            self._matching.selects(pod.signature) for pod in nominated
        )
        return ANTI_AFFINITY if selected else ""


class ExistingAntiAffinity:
    """One required anti-affinity term of existing pods that selects the pod: none of them is in the node's domain."""

    def __init__(self, term: AffinityTerm) -> None:
        self._domain_counts = DomainCounts(term.topology_key, term.by_node, lambda _node: True)

    def update_node(self, name: str, node_info: NodeInfo | None) -> None:
        """A node changed, or was removed."""
        self._domain_counts.update_node(name, node_info)

    def pre_filter(self) -> None:
        """Nothing to compute."""

    def filter(self, node_info: NodeInfo, nominated: Sequence[PodInfo] = ()) -> str:  # noqa: ARG002 (as all plugins)
        """Reject a node with such a pod in its domain; for nominated pods see :func:`repelled_by_nominated`."""
        return EXISTING_ANTI_AFFINITY if self._domain_counts.count_near(node_info) else ""


def topology_plugins(signature: PodSignature, cache: Cache) -> list[TopologyPlugin]:
    """The plugins for the pod's own constraints, in kube-scheduler's order: spread, affinity, anti-affinity."""
    plugins: list[TopologyPlugin] = [
        PodTopologySpread(constraint, signature, cache)
        for constraint in signature.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "DoNotSchedule"
    ]
    if signature.required_affinity:
        plugins.append(InterPodAffinity(signature.required_affinity, signature, cache))
    for term in signature.required_anti_affinity:
        selector = affinity_selector(term, signature, cache.namespaces)
        matching = cache.matching_pods((selector,), exclude_terminating=False)
        plugins.append(InterPodAntiAffinity(matching, term.topology_key))
    return plugins


def existing_anti_affinity_plugins(signature: PodSignature, terms: Iterable[AffinityTerm]) -> list[TopologyPlugin]:
    """The plugins for those anti-affinity terms of existing pods that select pods with this signature."""
    return [
        ExistingAntiAffinity(term) for term in terms if term.selector.selects(signature.namespace, signature.labels)
    ]


def repelled_by_nominated(
    signature: PodSignature,
    node_info: NodeInfo,
    nominated: Iterable[PodInfo],
    namespaces: Mapping[str, Mapping[str, str]],
) -> bool:
    """Whether an anti-affinity term of a pod nominated for the node selects pods with this signature."""
    return any(
        term.topology_key in node_info.labels
        and affinity_selector(term, pod.signature, namespaces).selects(signature.namespace, signature.labels)
        for pod in nominated
        for term in pod.signature.required_anti_affinity
    )
