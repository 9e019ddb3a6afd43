"""Whether pods' rules about one another hold on the final state: affinity, anti-affinity, topology spread.

Spread is judged as far as some order of binding could have led to the final state. A claim that may come up in several
domains counts in each of them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.scenarios.kubernetes_rules import (
    CAPACITY_TYPE,
    HOSTNAME,
    PREFERRED,
    REQUIRED,
    ZONE,
    Raw,
    affinity_terms,
    canonical,
    expression,
    key_of,
    labels_of,
    namespace_of,
    node_affinity_matches,
    repelled,
    selector_matches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.scenarios.cluster import Cluster


@dataclass(frozen=True, eq=False)
class Host:
    """A node with its pods; ``variants`` are its labels: of a node its own, of a claim all that it may come up with."""

    name: str
    variants: list[Raw]
    pods: list[Raw]
    taints: list[Raw]


class TopologyChecker:
    """The final state: every host with all its pods."""

    def __init__(self, cluster: Cluster, hosts: list[Host]) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._domains: dict[tuple[str, str], frozenset[str]] = {}
        self._counts: dict[Any, Counter[str]] = {}
        self._spreads: dict[Any, tuple[Counter[str], int]] = {}
        self._pool_nodes: dict[str, list[Raw]] = {}

    def problems(self) -> Iterator[str]:
        """Every required rule that doesn't hold."""
        for host in self._hosts:
            for pod in host.pods:
                yield from self._broken_anti_affinity(host, pod)
                if key_of(pod) in self._cluster.pending:
                    yield from self._broken_affinity_and_spread(host, pod)

    def _broken_anti_affinity(self, host: Host, pod: Raw) -> Iterator[str]:
        for term in affinity_terms(pod["spec"], "podAntiAffinity", REQUIRED):
            if self._has_selected_pod(host, pod, term):
                yield f"{key_of(pod)} on {host.name}: a pod of its anti-affinity is within {term['topologyKey']}"

    def _broken_affinity_and_spread(self, host: Host, pod: Raw) -> Iterator[str]:
        for term in affinity_terms(pod["spec"], "podAffinity", REQUIRED):
            if not self._affinity_holds(host, pod, term):
                yield f"{key_of(pod)} on {host.name}: no pod of its affinity is within {term['topologyKey']}"
        for constraint in pod["spec"].get("topologySpreadConstraints") or []:
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" and not self._spread_holds(host, pod, constraint):
                yield f"{key_of(pod)} on {host.name}: violates maxSkew over {constraint['topologyKey']}"

    def preferences_met(self) -> int:
        """Preferred affinities and ScheduleAnyway constraints that hold, counted by pod.

        A preference for different hosts holds on a host with at most half of the pods that it is about: kube-scheduler
        leaves hosts empty that are there for one replica each (docs/scheduling.md).
        """
        return sum(
            self._preferences_of(host, pod)
            for host in self._hosts
            for pod in host.pods
            if key_of(pod) in self._cluster.pending
        )

    def _preferences_of(self, host: Host, pod: Raw) -> int:
        spec = pod["spec"]
        met: int = sum(
            all(all(expression(e, v) for e in w["preference"].get("matchExpressions") or []) for v in host.variants)
            for w in affinity_terms(spec, "nodeAffinity", PREFERRED)
        )
        for weighted in affinity_terms(spec, "podAffinity", PREFERRED):
            term = weighted["podAffinityTerm"]
            domains = self._domains_of(host, canonical(term["topologyKey"]))
            selected = self._selected_pods(term, pod)
            met += len(domains) == 1 and selected[next(iter(domains))] - self._selects_itself(term, pod) > 0
        met += sum(
            not self._has_selected_pod(host, pod, weighted["podAffinityTerm"])
            or self._is_apart(host, pod, weighted["podAffinityTerm"])
            for weighted in affinity_terms(spec, "podAntiAffinity", PREFERRED)
        )
        met += sum(
            constraint["whenUnsatisfiable"] == "ScheduleAnyway"
            and (self._spread_holds(host, pod, constraint, at_the_end=True) or self._is_apart(host, pod, constraint))
            for constraint in spec.get("topologySpreadConstraints") or []
        )
        return met

    def _is_apart(self, host: Host, pod: Raw, rule: Raw) -> bool:
        """Whether the host has at most half of the pods that the rule over hosts selects, the pod among them."""
        if canonical(rule["topologyKey"]) != HOSTNAME or not self._selects_itself(rule, pod):
            return False
        selected = self._selected_pods(rule, pod)
        return all(selected[d] <= -(-sum(selected.values()) // 2) for d in self._domains_of(host, HOSTNAME))

    # --- domains and counts ---

    def _domains_of(self, host: Host, key: str) -> frozenset[str]:
        known = self._domains.get((host.name, key))
        if known is None:
            if key == HOSTNAME:
                known = frozenset([f"host {host.name}"])
            else:
                known = frozenset(v[key] for v in host.variants if key in v)
            self._domains[host.name, key] = known
        return known

    def _count(
        self,
        key: str,
        selector: Raw | None,
        namespaces: set[str],
        host_counts: Callable[[Host], bool] = lambda _: True,
        pod_counts: Callable[[Raw], bool] = lambda _: True,
    ) -> Counter[str]:
        """How many selected pods each domain has; a pod that may come up in several is counted in each."""
        total: Counter[str] = Counter()
        for host in self._hosts:
            if not host_counts(host):
                continue
            number = sum(
                namespace_of(p) in namespaces and selector_matches(selector, labels_of(p)) and pod_counts(p)
                for p in host.pods
            )
            if number:
                for domain in self._domains_of(host, key):
                    total[domain] += number
        return total

    def _selected_pods(self, term: Raw, pod: Raw) -> Counter[str]:
        """The pods that an affinity term of the pod selects, by domain."""
        key = canonical(term["topologyKey"])
        namespaces = self._cluster.namespaces_of(term, pod)
        memo = (key, json.dumps(term.get("labelSelector"), sort_keys=True), tuple(sorted(namespaces)))
        if memo not in self._counts:
            self._counts[memo] = self._count(key, term.get("labelSelector"), namespaces)
        return self._counts[memo]

    # --- affinity ---

    def _selects_itself(self, term: Raw, pod: Raw) -> bool:
        namespaces = self._cluster.namespaces_of(term, pod)
        return namespace_of(pod) in namespaces and selector_matches(term.get("labelSelector"), labels_of(pod))

    def _has_selected_pod(self, host: Host, pod: Raw, term: Raw) -> bool:
        selected = self._selected_pods(term, pod)
        itself = self._selects_itself(term, pod)
        return any(selected[d] - itself > 0 for d in self._domains_of(host, canonical(term["topologyKey"])))

    def _affinity_holds(self, host: Host, pod: Raw, term: Raw) -> bool:
        selected = self._selected_pods(term, pod)
        domains = self._domains_of(host, canonical(term["topologyKey"]))
        itself = self._selects_itself(term, pod)
        if len(domains) == 1 and selected[next(iter(domains))] - itself > 0:
            return True
        return itself and sum(selected.values()) == len(domains) and bool(domains)

    # --- topology spread ---

    def _spread_holds(self, host: Host, pod: Raw, constraint: Raw, *, at_the_end: bool = False) -> bool:
        """Whether a spread constraint holds; unless it must ``at_the_end``, whether it does in some order of binding.

        Until the end every pod may be elsewhere, but its own domain has at least the pods that run there already and
        those with the same constraint.
        """
        key = canonical(constraint["topologyKey"])
        domains = self._domains_of(host, key)
        if len(domains) != 1:
            return False
        own = pod["spec"].get("volumes") and key_of(pod)
        memo = (at_the_end, self._cluster.spec_id(pod), own, json.dumps(constraint, sort_keys=True))
        if memo not in self._spreads:
            self._spreads[memo] = self._spread_counts(pod, key, constraint, at_the_end=at_the_end)
        counts, least = self._spreads[memo]
        return bool(counts[next(iter(domains))] - least <= constraint["maxSkew"])

    def _spread_counts(self, pod: Raw, key: str, constraint: Raw, *, at_the_end: bool) -> tuple[Counter[str], int]:
        """The pods of a spread constraint by domain, and the global minimum."""
        honor_affinity = constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
        honor_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"

        def host_counts(host: Host) -> bool:
            if honor_taints and repelled(pod["spec"], host.taints):
                return False
            return not honor_affinity or any(node_affinity_matches(pod["spec"], v) for v in host.variants)

        def runs_or_shares_constraint(candidate: Raw) -> bool:
            constraints = candidate["spec"].get("topologySpreadConstraints") or []
            fields = ("topologyKey", "whenUnsatisfiable", "labelSelector")
            return key_of(candidate) not in self._cluster.pending or any(
                all(c.get(field) == constraint.get(field) for field in fields) for c in constraints
            )

        selector = _spread_selector(pod, constraint)
        counts = self._count(key, selector, {namespace_of(pod)}, host_counts)
        least = self._global_minimum(pod, key, constraint, counts)
        if not at_the_end:
            counts = self._count(key, selector, {namespace_of(pod)}, host_counts, runs_or_shares_constraint)
        return counts, least

    def _global_minimum(self, pod: Raw, key: str, constraint: Raw, counts: Counter[str]) -> int:
        if key == HOSTNAME:
            return 0
        domains = self._eligible_domains(pod, key, constraint)
        if constraint.get("minDomains") and len(domains) < constraint["minDomains"]:
            return 0
        return min((counts[d] for d in domains), default=0)

    def _eligible_domains(self, pod: Raw, key: str, constraint: Raw) -> set[str]:
        """The domains that nodes for this pod may have, always within the pod's and its volumes' own requirements."""
        honor_affinity = constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
        honor_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
        cluster = self._cluster
        nodes = [
            *((cluster.pool_taints(name), labels) for name in cluster.pools for labels in self._nodes_of_pool(name)),
            *((node["spec"].get("taints") or [], cluster.node_labels(name)) for name, node in cluster.nodes.items()),
        ]
        return {
            labels[key]
            for taints, labels in nodes
            if key in labels
            and not (honor_taints and repelled(pod["spec"], taints))
            and cluster.domain_allowed(pod, key, labels[key])
            and (not honor_affinity or cluster.may_run(pod, labels))
        }

    def _nodes_of_pool(self, name: str) -> list[Raw]:
        """The labels of every node that the pool may have."""
        if name not in self._pool_nodes:
            self._pool_nodes[name] = list(_nodes_of_pool(self._cluster, name))
        return self._pool_nodes[name]


def _spread_selector(pod: Raw, constraint: Raw) -> Raw | None:
    """The constraint's selector with its matchLabelKeys."""
    selector: Raw | None = constraint.get("labelSelector")
    keys = [k for k in constraint.get("matchLabelKeys") or [] if k in labels_of(pod)]
    if not keys or selector is None:
        return selector
    expressions = [{"key": k, "operator": "In", "values": [labels_of(pod)[k]]} for k in keys]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *expressions]}


def _nodes_of_pool(cluster: Cluster, name: str) -> Iterator[Raw]:
    requirements = cluster.pool_requirements(cluster.pools[name])
    custom_labels = _custom_labels(cluster, name, requirements)
    for type_name in cluster.types:
        if name in cluster.allowed and type_name not in cluster.allowed[name]:
            continue
        for offering in cluster.offerings(type_name):
            for custom in custom_labels:
                labels = {
                    **custom,
                    **cluster.type_labels(type_name),
                    ZONE: offering["zone"],
                    CAPACITY_TYPE: offering["capacityType"],
                }
                if all(expression(r, labels) for r in requirements if r["key"] in labels):
                    yield labels


def _custom_labels(cluster: Cluster, name: str, requirements: list[Raw]) -> list[Raw]:
    """The pool's labels with each value of each label that only its requirements define."""
    known = {k for t in cluster.types.values() for k in t.get("labels") or {}} | {ZONE, CAPACITY_TYPE}
    combinations = [cluster.pool_labels(name)]
    for r in requirements:
        if r["operator"] == "In" and canonical(r["key"]) not in known:
            combinations = [{**labels, r["key"]: v} for labels in combinations for v in r["values"]]
    return combinations
