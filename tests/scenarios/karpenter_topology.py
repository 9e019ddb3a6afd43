"""Karpenter's topology groups, re-enacted: what each rule about other pods counts, and the domains it leaves.

Where Karpenter takes any of several domains, a seeded random choice decides.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.scenarios.karpenter_pools import Pool, expressions_of
from tests.scenarios.kubernetes_rules import (
    HOSTNAME,
    PREFERRED,
    REQUIRED,
    HostPorts,
    Raw,
    affinity_terms,
    canonical,
    key_of,
    labels_of,
    namespace_of,
    repelled,
    selector_matches,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.scenarios.cluster import Cluster
    from tests.scenarios.karpenter_pools import Mask, Sizes

Domains = dict[str, set[str]]
"""By topology key, the domains that are allowed."""


@dataclass(frozen=True, eq=False)
class Pod:
    """A pod with the preferences that are not relaxed yet."""

    key: str
    raw: Raw
    size: Sizes
    terms: tuple[list[Raw], ...]
    nodes: tuple[Raw, ...]
    affinity: tuple[Raw, ...]
    anti_affinity: tuple[Raw, ...]
    schedule_anyway: tuple[Raw, ...]
    tolerates_soft_taints: bool


@dataclass(eq=False)
class Machine:
    """An existing node, or a claim with every variant that it may still come up as (``alive``)."""

    name: str
    pool: Pool | None
    taints: list[Raw]
    room: Sizes
    labels: Raw
    alive: Mask
    ports: HostPorts
    domains: Domains = field(default_factory=dict)
    expressions: list[Raw] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    attached: set[str] = field(default_factory=set)


@dataclass(eq=False)
class TopologyGroup:
    """The pods that a rule selects, by domain; ``owner`` says on which nodes they count."""

    kind: str
    key: str
    selector: Raw | None
    namespaces: frozenset[str]
    rule: Raw
    owner: Raw
    domains: set[str]
    counts: Counter[str] = field(default_factory=Counter)


class Topology:
    """All topology groups of a run."""

    def __init__(self, cluster: Cluster, pools: list[Pool], nodes: list[Machine], choice: random.Random) -> None:
        self._cluster = cluster
        self._pools = pools
        self._nodes = nodes
        self._random = choice
        self._groups: dict[str, TopologyGroup] = {}
        self._universes: dict[tuple[str, str], set[str]] = {}
        self._selected: dict[tuple[int, str], bool] = {}
        for pod in cluster.pods.values():
            if key_of(pod) in cluster.pending or pod["spec"].get("nodeName"):
                self._register(pod)
        for node in nodes:
            for pod in cluster.bound.get(node.name, []):
                self.record(pod, node)

    # --- groups ---

    def universe(self, key: str, pod: Raw, *, honor_taints: bool) -> set[str]:
        """Every domain of the key that pools and nodes have."""
        tolerations = json.dumps(pod["spec"].get("tolerations")) if honor_taints else ""
        known = self._universes.get((key, tolerations))
        if known is None:
            known = set()
            for pool in self._pools:
                if not honor_taints or not repelled(pod["spec"], pool.taints):
                    known |= {v[key] for v in pool.labels if key in v}
            for node in self._nodes:
                if key in node.labels and not (honor_taints and repelled(pod["spec"], node.taints)):
                    known.add(node.labels[key])
            self._universes[key, tolerations] = known
        return known

    def _register(self, pod: Raw) -> None:
        spec = pod["spec"]
        for kind, field_name in (("affinity", "podAffinity"), ("anti-affinity", "podAntiAffinity")):
            for rule in affinity_terms(spec, field_name, REQUIRED):
                self._group(kind, rule, pod)
                if kind == "anti-affinity":
                    self._group("inverse", rule, pod)
            for weighted in affinity_terms(spec, field_name, PREFERRED):
                self._group(kind, weighted["podAffinityTerm"], pod)
        for rule in spec.get("topologySpreadConstraints") or []:
            self._group("spread", rule, pod)

    def _group(self, kind: str, rule: Raw, pod: Raw) -> TopologyGroup:
        spread = kind == "spread"
        selector = _with_match_label_keys(rule, pod)
        namespaces = {namespace_of(pod)} if spread else self._cluster.namespaces_of(rule, pod)
        fields = {k: v for k, v in rule.items() if k not in {"whenUnsatisfiable", "labelSelector"}}
        spec = pod["spec"]
        node_filter = (spec.get("nodeSelector"), (spec.get("affinity") or {}).get("nodeAffinity")) if spread else ()
        name = json.dumps([kind, fields, selector, sorted(namespaces), node_filter], sort_keys=True)
        group = self._groups.get(name)
        if group is None:
            key = canonical(rule["topologyKey"])
            honor = spread and rule.get("nodeTaintsPolicy") == "Honor"
            domains = self.universe(key, pod, honor_taints=honor) if key != HOSTNAME else set()
            group = TopologyGroup(kind, key, selector, frozenset(namespaces), rule, pod, domains)
            self._groups[name] = group
        return group

    def _selects(self, group: TopologyGroup, pod: Raw) -> bool:
        memo = (id(group), key_of(pod))
        known = self._selected.get(memo)
        if known is None:
            known = namespace_of(pod) in group.namespaces and selector_matches(group.selector, labels_of(pod))
            self._selected[memo] = known
        return known

    # --- counting ---

    def record(self, pod: Raw, machine: Machine) -> None:
        """Count the pod in every rule that selects it, where its domain is certain."""
        for group in list(self._groups.values()):
            if group.kind == "inverse" or not self._selects(group, pod) or not self._counts_on(group, machine):
                continue
            values = self._domains_of(group.key, machine)
            if group.kind == "anti-affinity" or len(values) == 1:
                group.counts.update(values)
        self.record_anti_affinity(affinity_terms(pod["spec"], "podAntiAffinity", REQUIRED), pod, machine)

    def record_anti_affinity(self, rules: list[Raw] | tuple[Raw, ...], pod: Raw, machine: Machine) -> None:
        """Count the pod's anti-affinity rules where it runs: they keep the pods that they select away."""
        for rule in rules:
            group = self._group("inverse", rule, pod)
            group.counts.update(self._domains_of(group.key, machine))

    def _counts_on(self, group: TopologyGroup, machine: Machine) -> bool:
        if group.kind != "spread" or group.rule.get("nodeAffinityPolicy") == "Ignore":
            return True
        if machine.pool is None:
            return self._cluster.may_run(group.owner, machine.labels)
        return bool((machine.pool.mask(expressions_of(group.owner["spec"])) & machine.alive).any())

    def _domains_of(self, key: str, machine: Machine) -> set[str]:
        if machine.pool is None:
            return {machine.labels[key]} if key in machine.labels else set()
        return {machine.name} if key == HOSTNAME else machine.domains.get(key, set())

    # --- domains that rules leave ---

    def narrow(self, pod: Pod, machine: Machine, allowed: Domains) -> Domains | None:
        """The domains that the pod's rules leave, by key; None where a rule can't hold."""
        narrowed: Domains = {}
        for group in self._rules_of(pod):
            host = group.key == HOSTNAME
            domains = self._possible_domains(group.key, machine)
            known = None if host else allowed.get(group.key)
            counted = group.domains if known is None else group.domains & known
            domains = domains if known is None else domains & known
            domains = narrowed.get(group.key, domains) & domains
            left = self._next(group, pod.raw, counted, domains)
            if not left:
                return None
            narrowed[group.key] = left
        return narrowed

    def _rules_of(self, pod: Pod) -> Iterator[TopologyGroup]:
        spec = pod.raw["spec"]
        rules: list[TopologyGroup] = []
        for kind, field_name, preferred in (
            ("affinity", "podAffinity", pod.affinity),
            ("anti-affinity", "podAntiAffinity", pod.anti_affinity),
        ):
            rules += [self._group(kind, r, pod.raw) for r in affinity_terms(spec, field_name, REQUIRED)]
            rules += [self._group(kind, r, pod.raw) for r in preferred]
        constraints = spec.get("topologySpreadConstraints") or []
        required = [c for c in constraints if c["whenUnsatisfiable"] == "DoNotSchedule"]
        rules += [self._group("spread", c, pod.raw) for c in (*required, *pod.schedule_anyway)]
        yield from rules
        yield from [g for g in self._groups.values() if g.kind == "inverse" and self._selects(g, pod.raw)]

    def _possible_domains(self, key: str, machine: Machine) -> set[str]:
        if key == HOSTNAME:
            return {machine.name}
        if machine.pool is None:
            return {machine.labels[key]} if key in machine.labels else set()
        return machine.domains.get(key) or machine.pool.domains(key)

    def _next(self, group: TopologyGroup, pod: Raw, counted: set[str], domains: set[str]) -> set[str]:
        if group.kind in {"anti-affinity", "inverse"}:
            return {d for d in domains if not group.counts[d]}
        if group.kind == "affinity":
            return self._next_of_affinity(group, pod, counted, domains)
        return self._next_of_spread(group, pod, counted, domains)

    def _next_of_affinity(self, group: TopologyGroup, pod: Raw, counted: set[str], domains: set[str]) -> set[str]:
        with_pods = {d for d in domains if group.counts[d]}
        if with_pods:
            return with_pods
        selected = any(group.counts.values()) if group.key == HOSTNAME else any(group.counts[d] for d in counted)
        if self._selects(group, pod) and not selected and domains:
            return {self._any(domains)}
        return set()

    def _next_of_spread(self, group: TopologyGroup, pod: Raw, counted: set[str], domains: set[str]) -> set[str]:
        itself = self._selects(group, pod)
        least = 0 if group.key == HOSTNAME else min((group.counts[d] for d in counted), default=0)
        if group.rule.get("minDomains") and len(counted) < group.rule["minDomains"]:
            least = 0
        fits = {d: group.counts[d] for d in domains if group.counts[d] + itself - least <= group.rule["maxSkew"]}
        if not fits:
            return set()
        fewest = min(fits.values())
        return {self._any({d for d, n in fits.items() if n == fewest})}

    def _any(self, domains: set[str]) -> str:
        return self._random.choice(sorted(domains))


def _with_match_label_keys(rule: Raw, pod: Raw) -> Raw | None:
    selector: Raw | None = rule.get("labelSelector")
    keys = [k for k in rule.get("matchLabelKeys") or [] if k in labels_of(pod)]
    if not keys or selector is None:
        return selector
    expressions = [{"key": k, "operator": "In", "values": [labels_of(pod)[k]]} for k in keys]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *expressions]}
