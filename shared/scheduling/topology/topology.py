"""All topology rules of a run: the terms of pending and running pods, numbered, and what counts for each.

Terms over hosts are evaluated while nodes are packed, terms over zones and other domains before. Host ports are rules
over hosts too: at most one pod of a port on a host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.kubernetes import Toleration
from shared.api.labels import HOSTNAME, ZONE
from shared.api.selectors import SelectorError
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.pod_affinity import TopologyTerm, affinity_term
from shared.scheduling.rules.requirements import ANY, Requirements
from shared.scheduling.topology.domain_counts import DomainCounts, HostRules, TopologySpread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Pod
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.rules.pod_affinity import Namespaces, SpreadConstraint
    from shared.scheduling.state.state_nodes import StateNode, StateNodes
    from shared.scheduling.topology.domain_counts import HostCounts
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.pod_groups import PodGroup

    Bools = NDArray[np.bool_]

_TOLERATE_EVERYTHING = (Toleration(operator="Exists"),)


class TermNumbers:
    """Terms by number; those that select a pod are looked up by one of its labels."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[TopologyTerm, bytes], int] = {}
        self._by_label: dict[tuple[str, str], list[tuple[int, TopologyTerm]]] = {}
        self._without_labels: list[tuple[int, TopologyTerm]] = []

    def number(self, term: TopologyTerm, counted_nodes: bytes = b"") -> int:
        """The term's number. ``counted_nodes`` distinguishes terms that count on different nodes."""
        number = self.numbers.get((term, counted_nodes))
        if number is None:
            number = self.numbers[term, counted_nodes] = len(self.numbers)
            if term.labels:
                self._by_label.setdefault(term.labels[0], []).append((number, term))
            else:
                self._without_labels.append((number, term))
        return number

    def matching(self, namespace: str, labels: Mapping[str, str]) -> dict[int, int]:
        """The terms that select a pod with these labels, each with 1: the pods that the pod counts for."""
        numbers = {n: 1 for n, term in self._without_labels if term.matches(namespace, labels)}
        for pair in labels.items():
            for n, term in self._by_label.get(pair, ()):
                if term.matches(namespace, labels):
                    numbers[n] = 1
        return numbers


class Topology:
    """The topology rules of all pending groups and running pods."""

    def __init__(self, checker: FeasibilityChecker, namespaces: Namespaces, groups: Sequence[PodGroup]) -> None:
        self._checker = checker
        self._namespaces = namespaces
        self.host_terms = TermNumbers()
        self.domain_terms = TermNumbers()
        self.keys: dict[int, str] = {}
        self.domain_counts = DomainCounts(self.keys)
        self._counted_nodes: dict[int, Bools] = {}
        self._port_terms: dict[HostPort, int] = {}
        for port in sorted({port for group in groups for port in group.ports}):
            self._port_terms[port] = self.host_terms.number(TopologyTerm(f"port {port}", frozenset(), (), ()))

    # --- numbers of terms ---

    def host_term(self, term: TopologyTerm) -> int:
        """The number of a term over hosts."""
        return self.host_terms.number(term)

    def domain_term(self, term: TopologyTerm) -> int:
        """The number of a term over another topology key."""
        number = self.domain_terms.number(term)
        self.keys[number] = term.topology_key
        return number

    def spread_term(
        self, spread: SpreadConstraint, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]
    ) -> int:
        """The number of a spread constraint's term; its policies say on which nodes pods count."""
        state_nodes = self._checker.state_nodes
        counted = np.ones(len(state_nodes.nodes), np.bool_)
        if spread.honor_affinity:
            counted &= np.logical_or.reduce([state_nodes.allowed(a) for a in alternatives])
        if spread.honor_taints:
            counted &= self._checker.tolerated(tolerations, tolerate_prefer_no_schedule=True)[1]
        if counted.all():
            return self.domain_term(spread.term)
        number = self.domain_terms.number(spread.term, counted.tobytes())
        self.keys[number] = spread.term.topology_key
        self._counted_nodes[number] = counted
        return number

    def _port_rules(self, ports: Iterable[HostPort]) -> dict[int, int]:
        """The terms of these ports, one pod each; a port on all addresses conflicts with that port on any."""
        own_ports = set(ports)
        return {
            number: 1
            for (protocol, address, port), number in self._port_terms.items()
            if (protocol, address, port) in own_ports or (address and (protocol, "", port) in own_ports)
        }

    # --- rules of a group ---

    def host_rules(self, group: PodGroup) -> HostRules:
        """The required rules over hosts of a group's pods, and host ports."""
        match = self.host_terms.matching(group.namespace, group.labels)
        ports = self._port_rules(group.ports)
        cap = self.host_limits(match, group.anti_affinity, group.spread_constraints)
        return HostRules({**match, **ports}, {**cap, **ports})

    def host_limits(
        self,
        match: Mapping[int, int],
        anti_affinity: Iterable[TopologyTerm],
        spread_constraints: Iterable[SpreadConstraint],
    ) -> dict[int, int]:
        """How many pods of each host term these rules allow on the host of a pod that matches ``match``."""
        limits: dict[int, int] = {}
        for term in anti_affinity:
            if term.topology_key == HOSTNAME:
                limits[self.host_term(term)] = 1 if self.host_term(term) in match else 0
        for spread in spread_constraints:
            if spread.term.topology_key == HOSTNAME:
                number = self.host_term(spread.term)
                limits[number] = min(limits.get(number, spread.max_skew), spread.max_skew)
        return limits

    def topology_spread(
        self, spread: SpreadConstraint, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]
    ) -> TopologySpread:
        """A spread constraint with its eligible domains."""
        eligible = self.eligible_domains(spread, alternatives, tolerations)
        return TopologySpread(spread.max_skew, spread.min_domains, eligible)

    def eligible_domains(
        self, spread: SpreadConstraint, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]
    ) -> tuple[str, ...]:
        """The domains that count for the global minimum: those where new or existing nodes may run the group.

        The policies nodeAffinityPolicy and nodeTaintsPolicy may widen them; what the pod requires of the topology key
        itself always holds.
        """
        key = spread.term.topology_key
        tolerated = tolerations if spread.honor_taints else _TOLERATE_EVERYTHING
        domains: set[str] = set()
        for requirements in alternatives:
            allowed = requirements.get(key, ANY)
            honored: Requirements = requirements if spread.honor_affinity else {}
            options, _, offerings, nodes = self._checker.check(honored, tolerated, tolerate_prefer_no_schedule=True)
            values = {*self._checker.label_values(key, options, offerings, nodes), *self._shifted_zones(key, options)}
            domains.update(v for v in values if allowed.has(v))
        return tuple(sorted(domains))

    def _shifted_zones(self, key: str, options: Bools) -> set[str]:
        """The zones where these launch options would be if traffic weren't shifted away from them."""
        shifted = self._checker.launch_options.shifted_zones
        if key != ZONE or not shifted:
            return set()
        templates = [t for t in self._checker.launch_options.templates if options[t.options].any()]
        return {
            zone
            for template in templates
            for zone in shifted & {*template.instance_types.offering_columns[ZONE].values}
            if template.requirements.get(ZONE, ANY).has(zone)
        }

    # --- running pods ---

    def count_scheduled_pods(
        self, host_counts: HostCounts, state_nodes: StateNodes, pods_with_anti_affinity: Sequence[Pod]
    ) -> None:
        """Counts the pods of all nodes; their required anti-affinity binds pending pods too."""
        anti_affinity = {pod.key: self._required_anti_affinity(pod) for pod in pods_with_anti_affinity}
        if not self.host_terms.numbers and not self.domain_terms.numbers:
            return
        matching: dict[object, tuple[dict[int, int], dict[int, int]]] = {}
        for i, node in enumerate(state_nodes.nodes):
            for pod in node.pods:
                namespace, labels = pod.metadata.namespace or "default", pod.metadata.labels
                key = (namespace, tuple(labels.items()))
                if key not in matching:
                    matching[key] = (
                        self.host_terms.matching(namespace, labels),
                        self.domain_terms.matching(namespace, labels),
                    )
                host_terms, domain_terms = matching[key]
                own_terms = anti_affinity.get(pod.key, ())
                self._count_on_host(host_counts, i, pod, host_terms, own_terms)
                self._count_in_domains(i, node, domain_terms, own_terms)

    def _count_on_host(
        self, host_counts: HostCounts, node: int, pod: Pod, match: dict[int, int], own_terms: Iterable[TopologyTerm]
    ) -> None:
        own_numbers = [self.host_term(t) for t in own_terms if t.topology_key == HOSTNAME]
        cap = {number: 1 if number in match else 0 for number in own_numbers}
        ports = self._port_rules(host_ports(pod.spec)) if self._port_terms else {}
        if match or cap or ports:
            host_counts.count(node, {**match, **ports}, {**cap, **ports})

    def _count_in_domains(
        self, i: int, node: StateNode, match: Iterable[int], own_terms: Iterable[TopologyTerm]
    ) -> None:
        for number in match:
            value = node.labels.get(self.keys[number])
            if value is not None and (number not in self._counted_nodes or self._counted_nodes[number][i]):
                self.domain_counts.add(number, value, 1)
        for term in own_terms:
            value = node.labels.get(term.topology_key)
            if term.topology_key != HOSTNAME and value is not None:
                self.domain_counts.add_anti_affinity(self.domain_term(term), value, 1)

    def _required_anti_affinity(self, pod: Pod) -> tuple[TopologyTerm, ...]:
        """The required anti-affinity terms of a running pod, numbered."""
        affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
        if affinity is None:
            return ()
        required = affinity.required_during_scheduling_ignored_during_execution
        try:
            terms = tuple(affinity_term(t, pod, self._namespaces) for t in required)
        except SelectorError:
            return ()  # the API server accepted it; what can't be read here can't exclude other pods
        for term in terms:
            _ = self.host_term(term) if term.topology_key == HOSTNAME else self.domain_term(term)
        return terms
