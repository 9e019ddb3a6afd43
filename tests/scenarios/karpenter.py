"""Karpenter's scheduling, re-enacted: first fit, the largest pod first, one pod after the other.

Written from docs/facts/karpenter.md section 3 and checked against the golden records of the scenarios, so that other
clusters can be compared with Karpenter too. Shares the checker's reading of raw objects and nothing with the core.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tests.scenarios.cluster import Cluster
from tests.scenarios.karpenter_pools import Pool, pool_of, selector_of, vector
from tests.scenarios.karpenter_topology import Machine, Pod, Topology
from tests.scenarios.kubernetes_rules import (
    CAPACITY_TYPE,
    HOSTNAME,
    PREFERRED,
    REQUIRED,
    ZONE,
    Raw,
    affinity_terms,
    amounts,
    canonical,
    claim_keys,
    expression,
    owned_by_daemon_set,
    plus,
    ports_conflict,
    ports_of,
    requests,
    tolerated,
)

if TYPE_CHECKING:
    from tests.scenarios.karpenter_pools import Mask
    from tests.scenarios.karpenter_topology import Domains

_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_UNLIMITED = 1 << 62
_MOST_TYPES = 60


class Karpenter:
    """One run over one document."""

    def __init__(self, document: Raw, seed: int = 0) -> None:
        self._cluster = Cluster(document)
        self._strict = self._cluster.options.get("minValuesPolicy", "Strict") == "Strict"
        self._resources = sorted(
            {r for t in document["instanceTypes"] for r in t["capacity"]}
            | {r for p in self._cluster.pods.values() for r in requests(p["spec"])}
        )
        by_weight = sorted(
            self._cluster.pools.values(),
            key=lambda p: (p["spec"].get("weight", 0), p["metadata"]["name"]),
            reverse=True,
        )
        self._pools = [pool_of(self._cluster, self._resources, p) for p in by_weight]
        self._nodes = [self._node(name) for name in self._cluster.nodes]
        self._nodes.sort(key=lambda n: (n.labels.get("karpenter.sh/initialized", "true") != "true", n.name))
        self._claims: list[Machine] = []
        self._opened = len(self._nodes)
        choice = random.Random(seed)  # noqa: S311 (ties of domains, no secrets)
        self._topology = Topology(self._cluster, self._pools, self._nodes, choice)

    def _node(self, name: str) -> Machine:
        raw = self._cluster.nodes[name]
        labels, running = self._cluster.node_labels(name), self._cluster.bound.get(name, [])
        taints = raw["spec"].get("taints") or []
        load, ports = self._cluster.daemon_load(labels, taints)
        present = plus(*(requests(p["spec"]) for p in running if owned_by_daemon_set(p)))
        coming = Counter({k: max(0, v - present[k]) for k, v in load.items()})
        need = plus(*(requests(p["spec"]) for p in running), coming)
        room = vector(self._resources, amounts(raw["status"]["allocatable"])) - vector(self._resources, need)
        taken = [*ports, *(port for p in running for port in ports_of(p["spec"]))]
        attached = {claim for p in running for claim in claim_keys(p)}
        return Machine(name, None, taints, room, labels, np.ones(1, np.bool_), taken, attached=attached)

    # --- the loop ---

    def run(self) -> Raw:
        """Place every pod; the decision by the contract of ``tenon simulate``."""
        errors: dict[str, str] = {}
        queue: list[Pod] = []
        for key, raw in self._cluster.pending.items():
            if self._cluster.volume_terms(raw) is None:
                errors[key] = "its volumes"
                continue
            queue.append(self._read(key, raw))
        cpu, memory = self._resources.index("cpu"), self._resources.index("memory")
        queue.sort(
            key=lambda p: (
                -int(p.size[cpu]),
                -int(p.size[memory]),
                p.raw["metadata"].get("creationTimestamp") or "",
                p.raw["metadata"].get("uid") or p.key,
            )
        )
        while queue:
            left = [p for p in queue if not self._try(p)]
            if len(left) == len(queue):
                break
            queue = left
        errors.update({p.key: "no place" for p in queue})
        return {
            "nodeClaims": [self._claim(c) for c in self._claims],
            "existingNodes": {n.name: n.pods for n in self._nodes if n.pods},
            "errors": errors,
        }

    def _try(self, pod: Pod | None) -> bool:
        """Place the pod, relaxing its preferences one by one."""
        while pod is not None:
            expressions = self._expressions(pod)
            allowed = self._allowed_domains(expressions)
            if any(self._add(n, pod, expressions, allowed) for n in self._nodes):
                return True
            self._claims.sort(key=lambda c: len(c.pods))
            if any(self._add(c, pod, expressions, allowed) for c in self._claims):
                return True
            if any(self._open(p, pod, expressions, allowed) for p in self._pools):
                return True
            pod = relax(pod)
        return False

    # --- pods ---

    def _read(self, key: str, raw: Raw) -> Pod:
        spec = raw["spec"]
        required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
        ignore = self._cluster.options.get("preferencePolicy") == "Ignore"

        def heaviest_first(kind: str) -> list[Raw]:
            return [] if ignore else sorted(affinity_terms(spec, kind, PREFERRED), key=lambda t: -t["weight"])

        constraints = [] if ignore else spec.get("topologySpreadConstraints") or []
        return Pod(
            key=key,
            raw=raw,
            size=vector(self._resources, requests(spec)),
            terms=tuple(t.get("matchExpressions") or [] for t in required.get("nodeSelectorTerms") or []),
            nodes=tuple(t["preference"] for t in heaviest_first("nodeAffinity")),
            affinity=tuple(t["podAffinityTerm"] for t in heaviest_first("podAffinity")),
            anti_affinity=tuple(t["podAffinityTerm"] for t in heaviest_first("podAntiAffinity")),
            schedule_anyway=tuple(c for c in constraints if c["whenUnsatisfiable"] == "ScheduleAnyway"),
            tolerates_soft_taints=ignore,
        )

    def _expressions(self, pod: Pod) -> list[Raw]:
        """What the pod's selector, affinity, preferences and volumes require of a node."""
        expressions = selector_of(pod.raw["spec"])
        if pod.terms:
            expressions += pod.terms[0]
        if pod.nodes:
            expressions += pod.nodes[0].get("matchExpressions") or []
        for volume in self._cluster.volume_terms(pod.raw) or []:
            expressions += volume[0] if len(volume) == 1 else _union(volume)
        return [{**e, "key": canonical(e["key"])} for e in expressions]

    def _allowed_domains(self, expressions: list[Raw]) -> Domains:
        allowed: Domains = {}
        for e in expressions:
            domains = allowed.get(e["key"])
            if domains is None:
                domains = self._topology.universe(e["key"], {"spec": {}}, honor_taints=False)
            allowed[e["key"]] = {d for d in domains if expression(e, {e["key"]: d})}
        return allowed

    # --- machines ---

    def _add(self, machine: Machine, pod: Pod, expressions: list[Raw], allowed: Domains) -> bool:
        """Put the pod on the machine, if all rules hold there."""
        if self._is_repelled(machine, pod):
            return False
        alive = self._alive_with(machine, pod, expressions)
        narrowed = self._topology.narrow(pod, machine, allowed) if alive.any() else None
        if narrowed is None:
            return False
        room = machine.room - pod.size
        if machine.pool is not None:
            pool = machine.pool
            for key, domains in narrowed.items():
                if key != HOSTNAME:
                    alive = alive & pool.mask([{"key": key, "operator": "In", "values": sorted(domains)}])
            fits: Mask = np.logical_and.reduce(pool.free + room >= 0, axis=1)
            alive = alive & fits[pool.type_of]
            if not alive.any() or (self._strict and not pool.has_min_values(alive)):
                return False
            for key, domains in allowed.items():
                machine.domains[key] = (machine.domains.get(key) or pool.domains(key)) & domains
            machine.domains.update({k: v for k, v in narrowed.items() if k != HOSTNAME})
            machine.expressions += expressions
        machine.alive, machine.room = alive, room
        machine.ports = [*machine.ports, *ports_of(pod.raw["spec"])]
        machine.pods.append(pod.key)
        machine.attached |= claim_keys(pod.raw)
        self._topology.record(pod.raw, machine)
        self._topology.record_anti_affinity(pod.anti_affinity, pod.raw, machine)
        return True

    def _is_repelled(self, machine: Machine, pod: Pod) -> bool:
        """Whether a host port is taken, or a taint isn't tolerated."""
        spec = pod.raw["spec"]
        effects = _HARD_EFFECTS if pod.tolerates_soft_taints else (*_HARD_EFFECTS, "PreferNoSchedule")
        ports = ports_of(spec)
        return bool(ports and ports_conflict(ports, machine.ports)) or any(
            t["effect"] in effects and not tolerated(spec.get("tolerations") or [], t) for t in machine.taints
        )

    def _alive_with(self, machine: Machine, pod: Pod, expressions: list[Raw]) -> Mask:
        """The variants that the machine may be with the pod, by labels; of a node, whether it fits."""
        if machine.pool is not None:
            return machine.alive & machine.pool.mask(expressions)
        too_small = bool(((machine.room - pod.size) < 0)[pod.size > 0].any())
        fits = not too_small and all(expression(e, machine.labels) for e in expressions)
        return np.array([fits and self._attachable(machine, pod.raw)])

    def _attachable(self, machine: Machine, pod: Raw) -> bool:
        attached = machine.attached | claim_keys(pod)
        drivers = (self._cluster.csi.get(machine.name) or {"spec": {"drivers": []}})["spec"]["drivers"]
        limits = [(d.get("allocatable") or {}).get("count") for d in drivers]
        return all(limit is None or len(attached) <= limit for limit in limits)

    def _open(self, pool: Pool, pod: Pod, expressions: list[Raw], allowed: Domains) -> bool:
        """Open a claim of the pool for the pod, within the pool's limits."""
        left = np.array([pool.left.get(r, _UNLIMITED) for r in self._resources], np.int64)
        if pool.left.get("nodes", 1) <= 0:
            return False
        affordable: Mask = np.logical_and.reduce(pool.capacity <= left, axis=1)
        if not len(pool.types) or not affordable.any():
            return False
        room = np.zeros(len(self._resources), np.int64)
        alive = affordable[pool.type_of]
        machine = Machine(f"claim-{self._opened}", pool, pool.taints, room, {}, alive, list(pool.ports))
        if not self._add(machine, pod, expressions, allowed):
            return False
        self._opened += 1
        self._claims.append(machine)
        largest = pool.capacity[np.unique(pool.type_of[machine.alive])].max(0)
        for i, resource in enumerate(self._resources):
            if resource in pool.left:
                pool.left[resource] -= int(largest[i])
        if "nodes" in pool.left:
            pool.left["nodes"] -= 1000
        return True

    # --- the decision ---

    def _claim(self, claim: Machine) -> Raw:
        pool = claim.pool
        assert pool is not None
        cheapest: dict[str, tuple[float, Raw]] = {}
        for i in np.flatnonzero(claim.alive).tolist():
            name = pool.types[int(pool.type_of[i])]
            if name not in cheapest or pool.price[i] < cheapest[name][0]:
                cheapest[name] = (float(pool.price[i]), pool.labels[i])
        names = sorted(cheapest, key=lambda n: (cheapest[n][0], n))[:_MOST_TYPES]
        price, variant = cheapest[names[0]]
        own_keys = {*self._cluster.type_labels(names[0]), ZONE, CAPACITY_TYPE}
        custom = {
            r["key"]: variant[r["key"]] for r in pool.requirements if r["key"] not in own_keys and r["key"] in variant
        }
        settled = [{"key": k, "operator": "In", "values": sorted(v)} for k, v in claim.domains.items() if v]
        return {
            "nodePool": pool.name,
            "pods": list(claim.pods),
            "instanceTypes": names,
            "requirements": [
                *pool.requirements,
                *claim.expressions,
                *settled,
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": names},
            ],
            "requests": {},
            "labels": {**pool.fixed, **custom},
            "taints": pool.taints,
            "cheapest": {
                "instanceType": names[0],
                "zone": variant[ZONE],
                "capacityType": variant[CAPACITY_TYPE],
                "price": price,
            },
        }


def relax(pod: Pod) -> Pod | None:
    """The pod with one preference less, in Karpenter's order; None when there is none left."""
    if len(pod.terms) > 1:
        return replace(pod, terms=pod.terms[1:])
    if pod.affinity:
        return replace(pod, affinity=pod.affinity[1:])
    if pod.anti_affinity:
        return replace(pod, anti_affinity=pod.anti_affinity[1:])
    if pod.nodes:
        return replace(pod, nodes=pod.nodes[1:])
    if pod.schedule_anyway:
        return replace(pod, schedule_anyway=pod.schedule_anyway[1:])
    return None if pod.tolerates_soft_taints else replace(pod, tolerates_soft_taints=True)


def _union(alternatives: list[list[Raw]]) -> list[Raw]:
    """Several alternatives of a volume as one: each key with the values of all."""
    keys = {e["key"] for alternative in alternatives for e in alternative}
    values = {x for alternative in alternatives for e in alternative for x in e["values"]}
    return [{"key": k, "operator": "In", "values": sorted(values)} for k in keys]
