"""Karpenter's way of scheduling, re-enacted: the first place that fits, the largest pod first, one pod after the other.

Written from docs/facts/karpenter.md section 3 and checked against the golden records of the scenarios, so that clusters
nobody has recorded have a rival too. Where Karpenter takes any of several domains, a seed decides. Shares the judge's
reading of raw objects and nothing with the core.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.scenarios.rival_pools import Pool, expressions_of, pool_of, selector_of, vector

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Sizes = NDArray[np.int64]

Raw = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_TAINTS = ("NoSchedule", "NoExecute")


@dataclass(eq=False)
class Counted:
    """The pods that a rule speaks of, by domain; ``owner`` says on which nodes they count."""

    kind: str
    key: str
    selector: Raw | None
    namespaces: frozenset[str]
    rule: Raw
    owner: Raw
    domains: set[str]
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, eq=False)
class Pod:
    """One pod as it is tried: its preferences so far as they aren't given up."""

    key: str
    raw: Raw
    size: Sizes
    terms: tuple[list[Raw], ...]
    nodes: tuple[Raw, ...]
    near: tuple[Raw, ...]
    far: tuple[Raw, ...]
    anyway: tuple[Raw, ...]
    soft: bool


@dataclass(eq=False)
class Machine:
    """A node that is there, or a claim with all that it may still become."""

    name: str
    pool: Pool | None
    taints: list[Raw]
    room: Sizes
    labels: Raw
    alive: Mask
    ports: list[tuple[str, str, int]]
    known: dict[str, set[str]] = field(default_factory=dict)
    said: list[Raw] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    attached: set[str] = field(default_factory=set)


class Rival:
    """One run over one document."""

    def __init__(self, checker: ModuleType, document: Raw, seed: int = 0) -> None:
        self._checker = checker
        self._random = random.Random(seed)  # noqa: S311 (ties of domains, no secrets)
        self._world = checker.World(document, {"nodeClaims": [], "existingNodes": {}, "errors": {}})
        self._options = document.get("options") or {}
        self._strict = self._options.get("minValuesPolicy", "Strict") == "Strict"
        self._resources = sorted(
            {r for t in document["instanceTypes"] for r in t["capacity"]}
            | {r for p in self._world.pods.values() for r in checker.requests(p["spec"])}
        )
        self._pools = [
            pool_of(checker, self._world, self._resources, p)
            for p in sorted(
                self._world.pools.values(),
                key=lambda p: (p["spec"].get("weight", 0), p["metadata"]["name"]),
                reverse=True,
            )
        ]
        self._nodes = [self._node(n) for n in self._world.nodes.values()]
        self._nodes.sort(key=lambda n: (n.labels.get("karpenter.sh/initialized", "true") != "true", n.name))
        self._claims: list[Machine] = []
        self._groups: dict[str, Counted] = {}
        self._universes: dict[tuple[str, str], set[str]] = {}
        self._hosts: set[str] = {n.name for n in self._nodes}
        self._errors: dict[str, str] = {}
        self._selected: dict[tuple[int, str], bool] = {}
        for pod in self._world.pods.values():
            if key_of(pod) in self._world.pending or pod["spec"].get("nodeName"):
                self._register(pod)
        for node in self._nodes:
            for pod in self._world.bound.get(node.name, []):
                self._record(pod, node.labels, None, owned=True)

    # --- what there is ---

    def _node(self, raw: Raw) -> Machine:
        world, name = self._world, raw["metadata"]["name"]
        labels = world.node_labels(name)
        taints = raw["spec"].get("taints") or []
        running = world.bound.get(name, [])
        daemons = [p for p in running if owned_by_daemon(p)]
        load, ports = world.daemon_load(labels, taints)
        have = self._checker.plus(*(self._checker.requests(p["spec"]) for p in daemons))
        coming = Counter({k: max(0, v - have[k]) for k, v in load.items()})
        need = self._checker.plus(*(self._checker.requests(p["spec"]) for p in running), coming)
        size = self._checker.amounts(raw["status"]["allocatable"])
        room = vector(self._resources, size) - vector(self._resources, need)
        taken = [*ports, *(port for p in running for port in self._checker.ports_of(p["spec"]))]
        found = Machine(name, None, taints, room, labels, np.ones(1, np.bool_), taken)
        for p in running:
            found.attached |= volumes_of(p)
        return found

    # --- topology ---

    def _universe(self, key: str, pod: Raw, *, honor_taints: bool) -> set[str]:
        tolerations = json.dumps(pod["spec"].get("tolerations")) if honor_taints else ""
        found = self._universes.get((key, tolerations))
        if found is None:
            found = set()
            for pool in self._pools:
                if not honor_taints or not self._checker.repelled(pod["spec"], pool.taints):
                    found |= {v[key] for v in pool.labels if key in v}
            for node in self._nodes:
                if key in node.labels and not (honor_taints and self._checker.repelled(pod["spec"], node.taints)):
                    found.add(node.labels[key])
            self._universes[key, tolerations] = found
        return found

    def _group(self, kind: str, rule: Raw, pod: Raw) -> Counted:
        selector = rule.get("labelSelector")
        extra = [
            {"key": k, "operator": "In", "values": [labels_of(pod)[k]]}
            for k in rule.get("matchLabelKeys") or []
            if k in labels_of(pod)
        ]
        if extra and selector is not None:
            selector = {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *extra]}
        spread = kind == "spread"
        own = pod["metadata"].get("namespace") or "default"
        spaces = {own} if spread else self._world.namespaces_of(rule, pod)
        said = {k: v for k, v in rule.items() if k not in {"whenUnsatisfiable", "labelSelector"}}
        filtered = (
            (pod["spec"].get("nodeSelector"), (pod["spec"].get("affinity") or {}).get("nodeAffinity")) if spread else ()
        )
        name = json.dumps([kind, said, selector, sorted(spaces), filtered], sort_keys=True)
        found = self._groups.get(name)
        if found is None:
            key = self._checker.canonical(rule["topologyKey"])
            honor = spread and rule.get("nodeTaintsPolicy") == "Honor"
            domains = self._universe(key, pod, honor_taints=honor) if key != self._checker.HOSTNAME else set()
            found = Counted(kind, key, selector, frozenset(spaces), rule, pod, domains)
            self._groups[name] = found
        return found

    def _register(self, pod: Raw) -> None:
        affinity = pod["spec"].get("affinity") or {}
        for kind, name in (("near", "podAffinity"), ("far", "podAntiAffinity")):
            for rule in (affinity.get(name) or {}).get(_REQUIRED) or []:
                self._group(kind, rule, pod)
                if kind == "far":
                    self._group("inverse", rule, pod)
            for rule in (affinity.get(name) or {}).get(_PREFERRED) or []:
                self._group(kind, rule["podAffinityTerm"], pod)
        for rule in pod["spec"].get("topologySpreadConstraints") or []:
            self._group("spread", rule, pod)

    def _speaks_of(self, group: Counted, pod: Raw) -> bool:
        memo = (id(group), key_of(pod))
        found = self._selected.get(memo)
        if found is None:
            found = self._selected[memo] = (
                pod["metadata"].get("namespace") or "default"
            ) in group.namespaces and self._checker.selected(group.selector, labels_of(pod))
        return found

    def _record(
        self, pod: Raw, labels: Raw, machine: Machine | None, *, owned: bool, far: tuple[Raw, ...] = ()
    ) -> None:
        """Counts the pod in every rule that speaks of it, where its machine's domain is certain."""
        for group in list(self._groups.values()):
            if group.kind == "inverse" or not self._speaks_of(group, pod):
                continue
            if group.kind == "spread" and group.rule.get("nodeAffinityPolicy") != "Ignore":
                stands = (
                    self._world.may_stand(group.owner, labels)
                    if machine is None or machine.pool is None
                    else bool((self._mask(machine.pool, expressions_of(group.owner["spec"])) & machine.alive).any())
                )
                if not stands:
                    continue
            values = self._values(group.key, labels, machine)
            if group.kind == "far" or len(values) == 1:
                group.counts.update(values)
        terms = (
            ((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(_REQUIRED) or [] if owned else far
        )
        for rule in terms:
            group = self._group("inverse", rule, pod)
            group.counts.update(self._values(group.key, labels, machine))

    def _values(self, key: str, labels: Raw, machine: Machine | None) -> set[str]:
        if machine is None or machine.pool is None:
            return {labels[key]} if key in labels else set()
        if key == self._checker.HOSTNAME:
            return {machine.name}
        return machine.known.get(key, set())

    def _narrow(self, pod: Pod, machine: Machine, words: dict[str, set[str]]) -> dict[str, set[str]] | None:
        """The domains that are left by key; None where a rule can't be kept."""
        found: dict[str, set[str]] = {}
        rules: list[Counted] = []
        affinity = pod.raw["spec"].get("affinity") or {}
        for kind, name, wished in (("near", "podAffinity", pod.near), ("far", "podAntiAffinity", pod.far)):
            rules += [self._group(kind, r, pod.raw) for r in (affinity.get(name) or {}).get(_REQUIRED) or []]
            rules += [self._group(kind, r, pod.raw) for r in wished]
        hard = [
            c
            for c in pod.raw["spec"].get("topologySpreadConstraints") or []
            if c["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        rules += [self._group("spread", c, pod.raw) for c in (*hard, *pod.anyway)]
        rules += [g for g in self._groups.values() if g.kind == "inverse" and self._speaks_of(g, pod.raw)]
        for group in rules:
            host = group.key == self._checker.HOSTNAME
            if machine.pool is None:
                mine = {machine.labels[group.key]} if group.key in machine.labels else set()
                if host:
                    mine = {machine.name}
            elif host:
                mine = {machine.name}
            else:
                mine = machine.known.get(group.key) or self._declared(machine.pool, group.key)
            word = words.get(group.key)
            asked = group.domains if word is None or host else group.domains & word
            here = mine if word is None or host else mine & word
            here = found.get(group.key, here) & here
            left = self._next(group, pod.raw, asked, here, host=host)
            if not left:
                return None
            found[group.key] = left
        return found

    def _declared(self, pool: Pool, key: str) -> set[str]:
        return {v[key] for v in pool.labels if key in v}

    def _next(self, group: Counted, pod: Raw, asked: set[str], here: set[str], *, host: bool) -> set[str]:
        itself = self._speaks_of(group, pod)
        if group.kind in {"far", "inverse"}:
            return {d for d in here if not group.counts[d]}
        if group.kind == "near":
            found = {d for d in here if group.counts[d]}
            if found:
                return found
            if itself and not (any(group.counts.values()) if host else any(group.counts[d] for d in asked)):
                return {self._any(here)} if here else set()
            return set()
        least = 0 if host else min((group.counts[d] for d in asked), default=0)
        if group.rule.get("minDomains") and len(asked) < group.rule["minDomains"]:
            least = 0
        fits = {d: group.counts[d] for d in here if group.counts[d] + itself - least <= group.rule["maxSkew"]}
        if not fits:
            return set()
        fewest = min(fits.values())
        return {self._any({d for d, n in fits.items() if n == fewest})}

    def _any(self, domains: set[str]) -> str:
        return self._random.choice(sorted(domains))

    # --- placing ---

    def _mask(self, pool: Pool, expressions: list[Raw]) -> Mask:
        name = json.dumps(expressions, sort_keys=True)
        found = pool.masks.get(name)
        if found is None:
            found = pool.masks[name] = np.array(
                [all(self._checker.expression(e, v) for e in expressions) for v in pool.labels], np.bool_
            ).reshape(len(pool.labels))
        return found

    def _expressions(self, pod: Pod) -> list[Raw]:
        spec = pod.raw["spec"]
        found = selector_of(spec)
        if pod.terms:
            found += pod.terms[0]
        if pod.nodes:
            found += pod.nodes[0].get("matchExpressions") or []
        for volume in self._world.volume_terms(pod.raw) or []:
            if len(volume) == 1:
                found += volume[0]
            else:
                keys = {e["key"] for v in volume for e in v}
                found += [
                    {"key": k, "operator": "In", "values": sorted({x for v in volume for e in v for x in e["values"]})}
                    for k in keys
                ]
        return [{**e, "key": self._checker.canonical(e["key"])} for e in found]

    def _words(self, expressions: list[Raw]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for e in expressions:
            domains = found.get(e["key"])
            if domains is None:
                domains = self._universe(e["key"], {"spec": {}}, honor_taints=False)
            found[e["key"]] = {d for d in domains if self._checker.expression(e, {e["key"]: d})}
        return found

    def _add(self, machine: Machine, pod: Pod, asked: list[Raw], words: dict[str, set[str]]) -> bool:
        if self._repelled(machine, pod):
            return False
        alive = self._allowed(machine, pod, asked)
        if not alive.any():
            return False
        room = machine.room - pod.size
        narrowed = self._narrow(pod, machine, words)
        if narrowed is None:
            return False
        if machine.pool is not None:
            pool = machine.pool
            for key, domains in narrowed.items():
                if key != self._checker.HOSTNAME:
                    alive = alive & self._mask(pool, [{"key": key, "operator": "In", "values": sorted(domains)}])
            fits: Mask = np.logical_and.reduce(pool.free + room >= 0, axis=1)
            alive = alive & fits[pool.type_of]
            if not alive.any() or (self._strict and not self._various(pool, alive)):
                return False
            for key, domains in words.items():
                machine.known[key] = (machine.known.get(key) or self._declared(pool, key)) & domains
            machine.known.update({k: v for k, v in narrowed.items() if k != self._checker.HOSTNAME})
            machine.said += asked
        machine.alive, machine.room = alive, room
        machine.ports = [*machine.ports, *self._checker.ports_of(pod.raw["spec"])]
        machine.pods.append(pod.key)
        machine.attached |= volumes_of(pod.raw)
        self._record(pod.raw, machine.labels, machine, owned=True)
        if pod.far:
            self._record_wishes(pod, machine)
        return True

    def _repelled(self, machine: Machine, pod: Pod) -> bool:
        spec = pod.raw["spec"]
        effects = _NODE_TAINTS if pod.soft else (*_NODE_TAINTS, "PreferNoSchedule")
        ports = self._checker.ports_of(spec)
        return bool(ports and self._checker.clash(ports, machine.ports)) or any(
            t["effect"] in effects and not self._checker.tolerated(spec.get("tolerations") or [], t)
            for t in machine.taints
        )

    def _allowed(self, machine: Machine, pod: Pod, asked: list[Raw]) -> Mask:
        """What the machine may still be with the pod, as far as labels go; of a node, whether it will do."""
        if machine.pool is not None:
            return machine.alive & self._mask(machine.pool, asked)
        small = bool(((machine.room - pod.size) < 0)[pod.size > 0].any())
        fits = not small and all(self._checker.expression(e, machine.labels) for e in asked)
        return np.array([fits and self._attachable(machine, pod.raw)])

    def _record_wishes(self, pod: Pod, machine: Machine) -> None:
        """A preferred anti-affinity keeps others away too, while it is kept itself."""
        for rule in pod.far:
            group = self._group("inverse", rule, pod.raw)
            group.counts.update(self._values(group.key, machine.labels, machine))

    def _attachable(self, machine: Machine, pod: Raw) -> bool:
        wanted = machine.attached | volumes_of(pod)
        drivers = (self._world.csi.get(machine.name) or {"spec": {"drivers": []}})["spec"]["drivers"]
        limits = [(d.get("allocatable") or {}).get("count") for d in drivers]
        return all(n is None or len(wanted) <= n for n in limits)

    def _various(self, pool: Pool, alive: Mask) -> bool:
        for r in pool.requirements:
            if r.get("minValues"):
                have = {v.get(r["key"]) for v, ok in zip(pool.labels, alive, strict=True) if ok}
                if len(have) < r["minValues"]:
                    return False
        return True

    def _open(self, pool: Pool, pod: Pod, asked: list[Raw], words: dict[str, set[str]]) -> bool:
        left = np.array([pool.left.get(r, 1 << 62) for r in self._resources], np.int64)
        if pool.left.get("nodes", 1) <= 0:
            return False
        small: Mask = np.logical_and.reduce(pool.capacity <= left, axis=1)
        if not len(pool.types) or not small.any():
            return False
        name = f"claim-{len(self._hosts)}"
        machine = Machine(
            name, pool, pool.taints, np.zeros(len(self._resources), np.int64), {}, small[pool.type_of], list(pool.ports)
        )
        if not self._add(machine, pod, asked, words):
            return False
        self._hosts.add(name)
        self._claims.append(machine)
        biggest = pool.capacity[np.unique(pool.type_of[machine.alive])].max(0)
        for i, r in enumerate(self._resources):
            if r in pool.left:
                pool.left[r] -= int(biggest[i])
        if "nodes" in pool.left:
            pool.left["nodes"] -= 1000
        return True

    def _try(self, pod: Pod) -> bool:
        while True:
            asked = self._expressions(pod)
            words = self._words(asked)
            if any(self._add(n, pod, asked, words) for n in self._nodes):
                return True
            self._claims.sort(key=lambda c: len(c.pods))
            if any(self._add(c, pod, asked, words) for c in self._claims):
                return True
            if any(self._open(p, pod, asked, words) for p in self._pools):
                return True
            relaxed = relax(pod)
            if relaxed is None:
                return False
            pod = relaxed

    def run(self) -> Raw:
        """Places every pod; the answer as the contract has it."""
        queue: list[Pod] = []
        for key, raw in self._world.pending.items():
            if self._world.volume_terms(raw) is None:
                self._errors[key] = "its volumes"
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
        self._errors.update({p.key: "no place" for p in queue})
        return {
            "nodeClaims": [self._claim(c) for c in self._claims],
            "existingNodes": {n.name: n.pods for n in self._nodes if n.pods},
            "errors": self._errors,
        }

    def _read(self, key: str, raw: Raw) -> Pod:
        affinity = raw["spec"].get("affinity") or {}
        node = affinity.get("nodeAffinity") or {}
        required = node.get(_REQUIRED) or {}
        ignore = self._options.get("preferencePolicy") == "Ignore"

        def heaviest(terms: list[Raw] | None) -> list[Raw]:
            return [] if ignore else sorted(terms or [], key=lambda t: -t["weight"])

        return Pod(
            key,
            raw,
            vector(self._resources, self._checker.requests(raw["spec"])),
            tuple(t.get("matchExpressions") or [] for t in required.get("nodeSelectorTerms") or []),
            tuple(t["preference"] for t in heaviest(node.get(_PREFERRED))),
            tuple(t["podAffinityTerm"] for t in heaviest((affinity.get("podAffinity") or {}).get(_PREFERRED))),
            tuple(t["podAffinityTerm"] for t in heaviest((affinity.get("podAntiAffinity") or {}).get(_PREFERRED))),
            ()
            if ignore
            else tuple(
                c
                for c in raw["spec"].get("topologySpreadConstraints") or []
                if c["whenUnsatisfiable"] == "ScheduleAnyway"
            ),
            ignore,
        )

    def _claim(self, claim: Machine) -> Raw:
        pool = claim.pool
        assert pool is not None
        cheapest: dict[str, tuple[float, Raw]] = {}
        for i in np.flatnonzero(claim.alive).tolist():
            name = pool.types[int(pool.type_of[i])]
            if name not in cheapest or pool.price[i] < cheapest[name][0]:
                cheapest[name] = (float(pool.price[i]), pool.labels[i])
        names = sorted(cheapest, key=lambda n: (cheapest[n][0], n))[:60]
        price, variant = cheapest[names[0]]
        settled = [{"key": k, "operator": "In", "values": sorted(v)} for k, v in claim.known.items() if v]
        custom = {
            r["key"]: variant[r["key"]] for r in pool.requirements if r["key"] not in self._world.type_labels(names[0])
            and r["key"] not in {self._checker.ZONE, self._checker.CAPACITY_TYPE} and r["key"] in variant
        }  # fmt: skip
        return {
            "nodePool": pool.name,
            "pods": list(claim.pods),
            "instanceTypes": names,
            "requirements": [
                *pool.requirements,
                *claim.said,
                *settled,
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": names},
            ],
            "requests": {},
            "labels": {**pool.fixed, **custom},
            "taints": pool.taints,
            "cheapest": {
                "instanceType": names[0],
                "zone": variant[self._checker.ZONE],
                "capacityType": variant[self._checker.CAPACITY_TYPE],
                "price": price,
            },
        }


def relax(pod: Pod) -> Pod | None:
    """The pod with one preference less, in Karpenter's order; None when there is none."""
    for name, least in (("terms", 1), ("near", 0), ("far", 0), ("nodes", 0), ("anyway", 0)):
        held = getattr(pod, name)
        if len(held) > least:
            return replaced(pod, name, held[1:])
    return replaced(pod, "soft", value=True) if not pod.soft else None


def replaced(pod: Pod, name: str, value: object) -> Pod:
    return Pod(**{**pod.__dict__, name: value})


def key_of(pod: Raw) -> str:
    return f"{pod['metadata'].get('namespace') or 'default'}/{pod['metadata']['name']}"


def labels_of(pod: Raw) -> Raw:
    return pod["metadata"].get("labels") or {}


def owned_by_daemon(pod: Raw) -> bool:
    return any(o.get("kind") == "DaemonSet" for o in pod["metadata"].get("ownerReferences") or [])


def volumes_of(pod: Raw) -> set[str]:
    found = [v.get("persistentVolumeClaim") for v in pod["spec"].get("volumes") or []]
    return {f"{pod['metadata'].get('namespace') or 'default'}/{v['claimName']}" for v in found if v}
