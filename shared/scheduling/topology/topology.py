"""Every topology rule of a run, numbered: who is counted by it, and what is counted already.

Rules about hosts go with the machines that are packed; rules about zones and other domains are settled before. Ports
of the host are rules about hosts like any other: at most one pod a host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.kubernetes import Toleration
from shared.api.labels import HOSTNAME
from shared.api.selectors import SelectorError
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.pod_affinity import Namespaces, SpreadConstraint, TopologyTerm, affinity_term
from shared.scheduling.rules.requirements import ANY, Requirements
from shared.scheduling.topology.domain_counts import DomainCounts, TopologySpread
from shared.scheduling.topology.host_counts import HostRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Pod
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.state.state_nodes import ClusterState
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.host_counts import HostCounts
    from shared.scheduling.topology.pod_groups import PodGroup

    BoolArray = NDArray[np.bool_]

_EVERYTHING = (Toleration(operator="Exists"),)


class TermNumbers:
    """Terms by number, found by a label they ask for."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[TopologyTerm, bytes], int] = {}
        self._by_label: dict[tuple[str, str], list[tuple[int, TopologyTerm]]] = {}
        self._others: list[tuple[int, TopologyTerm]] = []

    def number(self, term: TopologyTerm, counted: bytes = b"") -> int:
        """The term's number; ``counted`` tells apart terms that count on different nodes."""
        found = self.numbers.get((term, counted))
        if found is None:
            found = self.numbers[term, counted] = len(self.numbers)
            if term.labels:
                self._by_label.setdefault(term.labels[0], []).append((found, term))
            else:
                self._others.append((found, term))
        return found

    def matching(self, namespace: str, labels: Mapping[str, str]) -> dict[int, int]:
        """The numbers of the terms that speak of a pod with these labels."""
        found = {n: 1 for n, term in self._others if term.matches(namespace, labels)}
        for pair in labels.items():
            for n, term in self._by_label.get(pair, ()):
                if term.matches(namespace, labels):
                    found[n] = 1
        return found


class Topology:
    """The rules of all classes and of the pods that run already."""

    def __init__(self, checker: FeasibilityChecker, namespaces: Namespaces, classes: Sequence[PodGroup]) -> None:
        self._checker = checker
        self._namespaces = namespaces
        self.host_terms = TermNumbers()
        self.domain_terms = TermNumbers()
        self.keys: dict[int, str] = {}
        self.domain_counts = DomainCounts(self.keys)
        self._counted: dict[int, BoolArray] = {}
        self._ports: dict[tuple[str, str, int], int] = {}
        self._eligible: dict[object, tuple[str, ...]] = {}
        self._number_ports(classes)

    # --- numbering ---

    def host_term(self, term: TopologyTerm) -> int:
        """The number of a rule about hosts."""
        return self.host_terms.number(term)

    def domain_term(self, term: TopologyTerm) -> int:
        """The number of a rule about another domain."""
        found = self.domain_terms.number(term)
        self.keys[found] = term.topology_key
        return found

    def spread_term(
        self, spread: SpreadConstraint, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]
    ) -> int:
        """The number of a spread rule over another domain than hosts, by the nodes on which pods count for it."""
        cluster_state = self._checker.cluster_state
        mask = np.ones(len(cluster_state.nodes), np.bool_)
        if spread.honor_affinity:
            mask &= np.logical_or.reduce([cluster_state.allowed(a) for a in alternatives])
        if spread.honor_taints:
            mask &= self._checker.tolerated(tolerations, tolerate_prefer_no_schedule=True)[1]
        if mask.all():
            return self.domain_term(spread.term)
        found = self.domain_terms.number(spread.term, mask.tobytes())
        self.keys[found] = spread.term.topology_key
        self._counted[found] = mask
        return found

    def _number_ports(self, classes: Sequence[PodGroup]) -> None:
        taken = {port for c in classes for port in c.ports}
        for port in sorted(taken):
            self._ports[port] = self.host_terms.number(TopologyTerm(f"port {port}", frozenset(), (), ()))

    def port_rules(self, ports: Iterable[HostPort]) -> dict[int, int]:
        """The host rules of these ports: one pod each; a port on all addresses clashes with that port on any."""
        mine = set(ports)
        found: dict[int, int] = {}
        for (protocol, address, port), number in self._ports.items():
            if (protocol, address, port) in mine or (address and (protocol, "", port) in mine):
                found[number] = 1
        return found

    # --- what counts ---

    def host_rules(
        self, pods: PodGroup, anti_affinity: Iterable[TopologyTerm], spread: Iterable[SpreadConstraint]
    ) -> HostRules:
        """What pods of a class count for on a host, and what they bear there."""
        match = self.host_terms.matching(pods.namespace, pods.labels)
        cap: dict[int, int] = {}
        for term in anti_affinity:
            number = self.host_term(term)
            cap[number] = min(cap.get(number, 1), 1 if number in match else 0)
        for rule in spread:
            number = self.host_term(rule.term)
            cap[number] = min(cap.get(number, rule.max_skew), rule.max_skew)
        ports = self.port_rules(pods.ports)
        return HostRules({**match, **ports}, {**cap, **ports})

    def topology_spread(
        self, spread: SpreadConstraint, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]
    ) -> TopologySpread:
        """A spread rule with the domains that count for its minimum.

        They are the values that nodes may have where the class may run, by the rule's policies: of machines to buy,
        and of places. Ignoring taints or affinity widens them; the pod's own word on the key always holds.
        """
        return TopologySpread(
            spread.max_skew, spread.min_domains, self.eligible_domains(spread, alternatives, tolerations)
        )

    def eligible_domains(
        self, spread: SpreadConstraint, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]
    ) -> tuple[str, ...]:
        """The values of the rule's key that count for its minimum, by any of the alternatives."""
        key = spread.term.topology_key
        borne = tolerations if spread.honor_taints else _EVERYTHING
        found: set[str] = set()
        for requirements in alternatives:
            allowed = requirements.get(key, ANY)
            asked: Requirements = requirements if spread.honor_affinity else {}
            options, _, offerings, places = self._checker.check(asked, borne, tolerate_prefer_no_schedule=True)
            found.update(v for v in self.label_values(key, options, offerings, places) if allowed.has(v))
        return tuple(sorted(found))

    def label_values(self, key: str, options: BoolArray, offerings: BoolArray, places: BoolArray) -> tuple[str, ...]:
        """The values of a label among these rows, offerings and places, in order."""
        launch_options, cluster_state = self._checker.launch_options, self._checker.cluster_state
        found: set[str] = set()
        if len(cluster_state.nodes) and places.any():
            column = cluster_state.column(key)
            found |= {column.values[c] for c in np.unique(column.codes[places]).tolist() if c >= 0}
        if key in launch_options.columns:
            had = np.isfinite(launch_options.price[options][:, offerings]).any(0)
            column = launch_options.columns[key]
            found |= {column.values[c] for c in column.codes[np.flatnonzero(offerings)[had]].tolist() if c >= 0}
            return tuple(sorted(found))
        for pool in launch_options.templates:
            here = options[pool.options]
            if not here.any():
                continue
            if key in pool.catalog.type_columns:
                column = pool.catalog.type_columns[key]
                found |= {column.values[c] for c in np.unique(column.codes[pool.types[here]]).tolist() if c >= 0}
            elif pool.catalog.knows(key):
                found |= set(pool.catalog.values_of(key))
            elif key != HOSTNAME and not pool.state(key).complement:
                found |= pool.state(key).values
        return tuple(sorted(found))

    # --- what runs already ---

    def count_scheduled_pods(
        self, host_counts: HostCounts, cluster_state: ClusterState, numbered: Sequence[Pod]
    ) -> None:
        """Counts the pods on all places; their own anti-affinities keep others away."""
        required_anti_affinity = {p.key: self._guards(p) for p in numbered}
        if not self.host_terms.numbers and not self.domain_terms.numbers:
            return
        known: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[dict[int, int], dict[int, int]]] = {}
        for i, place in enumerate(cluster_state.nodes):
            for pod in place.pods:
                namespace = pod.metadata.namespace or "default"
                key = (namespace, tuple(pod.metadata.labels.items()))
                if key not in known:
                    known[key] = (
                        self.host_terms.matching(namespace, pod.metadata.labels),
                        self.domain_terms.matching(namespace, pod.metadata.labels),
                    )
                hosts, domain_terms = known[key]
                terms = required_anti_affinity.get(pod.key, ())
                cap = {
                    self.host_term(t): (1 if self.host_term(t) in hosts else 0)
                    for t in terms
                    if t.topology_key == HOSTNAME
                }
                ports = self.port_rules(host_ports(pod.spec)) if self._ports else {}
                if hosts or cap or ports:
                    host_counts.count(i, {**hosts, **ports}, {**cap, **ports})
                for number in domain_terms:
                    value = place.labels.get(self.keys[number])
                    if value is not None and (number not in self._counted or self._counted[number][i]):
                        self.domain_counts.add(number, value, 1)
                for term in terms:
                    value = place.labels.get(term.topology_key)
                    if term.topology_key != HOSTNAME and value is not None:
                        self.domain_counts.add_anti_affinity(self.domain_term(term), value, 1)

    def _guards(self, pod: Pod) -> tuple[TopologyTerm, ...]:
        affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
        if affinity is None:
            return ()
        terms = affinity.required_during_scheduling_ignored_during_execution
        try:
            found = tuple(affinity_term(t, pod, self._namespaces) for t in terms)
        except SelectorError:
            return ()  # it runs, so the API server took it; what can't be read can't keep others away
        for term in found:
            _ = self.host_term(term) if term.topology_key == HOSTNAME else self.domain_term(term)
        return found
