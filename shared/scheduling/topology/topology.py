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
from shared.scheduling.rules.pod_affinity import Namespaces, Spread, Term, affinity_term
from shared.scheduling.rules.requirements import ANY, Requirements
from shared.scheduling.state.launch_options import host_ports
from shared.scheduling.topology.domain_counts import Domains, Even
from shared.scheduling.topology.feasibility import HostRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Pod
    from shared.scheduling.state.existing_capacity import Ground
    from shared.scheduling.state.launch_options import HostPort
    from shared.scheduling.state.state_nodes import Inventory
    from shared.scheduling.topology.feasibility import Judge
    from shared.scheduling.topology.pod_groups import PodClass

    BoolArray = NDArray[np.bool_]

_EVERYTHING = (Toleration(operator="Exists"),)


class Numbering:
    """Terms by number, found by a label they ask for."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Term, bytes], int] = {}
        self._by_label: dict[tuple[str, str], list[tuple[int, Term]]] = {}
        self._others: list[tuple[int, Term]] = []

    def number(self, term: Term, counted: bytes = b"") -> int:
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

    def __init__(self, judge: Judge, namespaces: Namespaces, classes: Sequence[PodClass]) -> None:
        self._judge = judge
        self._namespaces = namespaces
        self.hosts = Numbering()
        self.areas = Numbering()
        self.keys: dict[int, str] = {}
        self.domains = Domains(self.keys)
        self._counted: dict[int, BoolArray] = {}
        self._ports: dict[tuple[str, str, int], int] = {}
        self._eligible: dict[object, tuple[str, ...]] = {}
        self._number_ports(classes)

    # --- numbering ---

    def host(self, term: Term) -> int:
        """The number of a rule about hosts."""
        return self.hosts.number(term)

    def area(self, term: Term) -> int:
        """The number of a rule about another domain."""
        found = self.areas.number(term)
        self.keys[found] = term.key
        return found

    def spread(self, spread: Spread, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]) -> int:
        """The number of a spread rule over another domain than hosts, by the nodes on which pods count for it."""
        inventory = self._judge.inventory
        mask = np.ones(len(inventory.places), np.bool_)
        if spread.honor_affinity:
            mask &= np.logical_or.reduce([inventory.allowed(a) for a in alternatives])
        if spread.honor_taints:
            mask &= self._judge.tolerated(tolerations, soft=True)[1]
        if mask.all():
            return self.area(spread.term)
        found = self.areas.number(spread.term, mask.tobytes())
        self.keys[found] = spread.term.key
        self._counted[found] = mask
        return found

    def _number_ports(self, classes: Sequence[PodClass]) -> None:
        taken = {port for c in classes for port in c.ports}
        for port in sorted(taken):
            self._ports[port] = self.hosts.number(Term(f"port {port}", frozenset(), (), ()))

    def port_rules(self, ports: Iterable[HostPort]) -> dict[int, int]:
        """The host rules of these ports: one pod each; a port on all addresses clashes with that port on any."""
        mine = set(ports)
        found: dict[int, int] = {}
        for (protocol, address, port), number in self._ports.items():
            if (protocol, address, port) in mine or (address and (protocol, "", port) in mine):
                found[number] = 1
        return found

    # --- what counts ---

    def host_rules(self, pods: PodClass, apart: Iterable[Term], spread: Iterable[Spread]) -> HostRules:
        """What pods of a class count for on a host, and what they bear there."""
        match = self.hosts.matching(pods.namespace, pods.labels)
        cap: dict[int, int] = {}
        for term in apart:
            number = self.host(term)
            cap[number] = min(cap.get(number, 1), 1 if number in match else 0)
        for rule in spread:
            number = self.host(rule.term)
            cap[number] = min(cap.get(number, rule.max_skew), rule.max_skew)
        ports = self.port_rules(pods.ports)
        return HostRules({**match, **ports}, {**cap, **ports})

    def even(self, spread: Spread, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]) -> Even:
        """A spread rule with the domains that count for its minimum.

        They are the values that nodes may have where the class may run, by the rule's policies: of machines to buy,
        and of places. Ignoring taints or affinity widens them; the pod's own word on the key always holds.
        """
        return Even(spread.max_skew, spread.min_domains, self.eligible(spread, alternatives, tolerations))

    def eligible(
        self, spread: Spread, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...]
    ) -> tuple[str, ...]:
        """The values of the rule's key that count for its minimum, by any of the alternatives."""
        key = spread.term.key
        borne = tolerations if spread.honor_taints else _EVERYTHING
        found: set[str] = set()
        for requirements in alternatives:
            allowed = requirements.get(key, ANY)
            asked: Requirements = requirements if spread.honor_affinity else {}
            rows, _, offerings, places = self._judge.judge(asked, borne, soft=True)
            found.update(v for v in self.values(key, rows, offerings, places) if allowed.has(v))
        return tuple(sorted(found))

    def values(self, key: str, rows: BoolArray, offerings: BoolArray, places: BoolArray) -> tuple[str, ...]:
        """The values of a label among these rows, offerings and places, in order."""
        market, inventory = self._judge.market, self._judge.inventory
        found: set[str] = set()
        if len(inventory.places) and places.any():
            column = inventory.column(key)
            found |= {column.values[c] for c in np.unique(column.codes[places]).tolist() if c >= 0}
        if key in market.columns:
            had = np.isfinite(market.price[rows][:, offerings]).any(0)
            column = market.columns[key]
            found |= {column.values[c] for c in column.codes[np.flatnonzero(offerings)[had]].tolist() if c >= 0}
            return tuple(sorted(found))
        for pool in market.pools:
            here = rows[pool.rows]
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

    def count_running(self, ground: Ground, inventory: Inventory, numbered: Sequence[Pod]) -> None:
        """Counts the pods on all places; their own anti-affinities keep others away."""
        guards = {p.key: self._guards(p) for p in numbered}
        if not self.hosts.numbers and not self.areas.numbers:
            return
        known: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[dict[int, int], dict[int, int]]] = {}
        for i, place in enumerate(inventory.places):
            for pod in place.pods:
                namespace = pod.metadata.namespace or "default"
                key = (namespace, tuple(pod.metadata.labels.items()))
                if key not in known:
                    known[key] = (
                        self.hosts.matching(namespace, pod.metadata.labels),
                        self.areas.matching(namespace, pod.metadata.labels),
                    )
                hosts, areas = known[key]
                guarded = guards.get(pod.key, ())
                cap = {self.host(t): (1 if self.host(t) in hosts else 0) for t in guarded if t.key == HOSTNAME}
                ports = self.port_rules(host_ports(pod.spec)) if self._ports else {}
                if hosts or cap or ports:
                    ground.hosts.count(i, {**hosts, **ports}, {**cap, **ports})
                for number in areas:
                    value = place.labels.get(self.keys[number])
                    if value is not None and (number not in self._counted or self._counted[number][i]):
                        self.domains.add(number, value, 1)
                for term in guarded:
                    value = place.labels.get(term.key)
                    if term.key != HOSTNAME and value is not None:
                        self.domains.guard(self.area(term), value, 1)

    def _guards(self, pod: Pod) -> tuple[Term, ...]:
        affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
        if affinity is None:
            return ()
        terms = affinity.required_during_scheduling_ignored_during_execution
        try:
            found = tuple(affinity_term(t, pod, self._namespaces) for t in terms)
        except SelectorError:
            return ()  # it runs, so the API server took it; what can't be read can't keep others away
        for term in found:
            _ = self.host(term) if term.key == HOSTNAME else self.area(term)
        return found
