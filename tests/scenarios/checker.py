"""Judges a decision from Kubernetes' rules alone: brute force over raw objects, sharing no code with the core.

A claim may come up as any listed type in any available offering that its requirements allow; it must be right in each
of them. Topology is judged on the final state, spread as far as some order of binding could have led there; a claim
that might come up in two domains stands in both.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Raw = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
HOSTNAME = "kubernetes.io/hostname"
EVERYWHERE = "0.0.0.0"  # noqa: S104 (compared with, never bound to)
ALIASES = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.ebs.csi.aws.com/zone": ZONE,
}
SUFFIXES: dict[str, Fraction | int] = {
    "": 1, "m": Fraction(1, 1000), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


def canonical(key: str) -> str:
    return ALIASES.get(key, key)


@cache
def amount(text: str) -> Fraction:
    digits = text.rstrip("kKMGTim")
    return Fraction(digits) * Fraction(SUFFIXES[text[len(digits) :]])


def amounts(raw: Raw | None) -> Counter[str]:
    return Counter({k: amount(str(v)) for k, v in (raw or {}).items()})


def plus(*many: Counter[str]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in many:
        for k, v in one.items():
            total[k] += v
    return total


def largest(*many: Counter[str]) -> Counter[str]:
    keys = {k for one in many for k in one}
    return Counter({k: max(one[k] for one in many) for k in keys})


def requests(spec: Raw) -> Counter[str]:
    def own(c: Raw) -> Counter[str]:
        r = c.get("resources") or {}
        return amounts({**(r.get("limits") or {}), **(r.get("requests") or {})})

    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for c in spec.get("initContainers") or []:
        if c.get("restartPolicy") == "Always":
            sidecars = plus(sidecars, own(c))
            peak = largest(peak, sidecars)
        else:
            peak = largest(peak, plus(sidecars, own(c)))
    running = plus(*(own(c) for c in spec.get("containers") or []), sidecars)
    return plus(largest(running, peak), amounts(spec.get("overhead")), Counter({"pods": 1}))


def expression(e: Raw, labels: Raw) -> bool:
    value = labels.get(canonical(e["key"]))
    values = e.get("values") or []
    match e["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            if value is None or not str(value).lstrip("-").isdigit():
                return False
            a, b = int(value), int(values[0])
            return {"Gt": a > b, "Lt": a < b, "Gte": a >= b, "Lte": a <= b}[operator]


def node_matches(spec: Raw, labels: Raw) -> bool:
    if any(labels.get(canonical(k)) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return required is None or any(
        t.get("matchExpressions") and all(expression(e, labels) for e in t["matchExpressions"])
        for t in required["nodeSelectorTerms"]
    )


def tolerated(tolerations: list[Raw], taint: Raw) -> bool:
    return any(
        (not t.get("effect") or t["effect"] == taint["effect"])
        and (not t.get("key") or t["key"] == taint["key"])
        and (t.get("operator") == "Exists" or (t.get("key") and t.get("value", "") == taint.get("value", "")))
        for t in tolerations
    )


def repelled(spec: Raw, taints: list[Raw]) -> bool:
    return any(
        t["effect"] in ("NoSchedule", "NoExecute") and not tolerated(spec.get("tolerations") or [], t) for t in taints
    )


def selected(selector: Raw | None, labels: Raw) -> bool:
    if selector is None:
        return False
    return all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items()) and all(
        expression(e, labels) for e in selector.get("matchExpressions") or []
    )


def key_of(pod: Raw) -> str:
    return f"{pod['metadata'].get('namespace') or 'default'}/{pod['metadata']['name']}"


def labels_of(pod: Raw) -> Raw:
    return pod["metadata"].get("labels") or {}


def ports_of(spec: Raw) -> list[tuple[str, str, int]]:
    return [
        (p.get("protocol", "TCP"), p.get("hostIP") or EVERYWHERE, p["hostPort"])
        for c in spec.get("containers") or []
        for p in c.get("ports") or []
        if p.get("hostPort")
    ]


def clash(a: list[tuple[str, str, int]], b: list[tuple[str, str, int]]) -> bool:
    return any(p == q and n == m and (x == y or EVERYWHERE in (x, y)) for p, x, n in a for q, y, m in b)


class World:
    """The document with what it means, and the decision laid over it."""

    def __init__(self, document: Raw, decision: Raw) -> None:
        self.decision = decision
        self.options = document.get("options") or {}
        by: dict[str, list[Raw]] = {}
        for o in document["objects"]:
            by.setdefault(o["kind"], []).append(o)
        self.pods = {key_of(p): p for p in by.get("Pod", [])}
        self.nodes = {n["metadata"]["name"]: n for n in by.get("Node", [])}
        self.pools = {p["metadata"]["name"]: p for p in by.get("NodePool", [])}
        self.daemons = by.get("DaemonSet", [])
        self.claims = {
            f"{c['metadata'].get('namespace') or 'default'}/{c['metadata']['name']}": c
            for c in by.get("PersistentVolumeClaim", [])
        }
        self.volumes = {v["metadata"]["name"]: v for v in by.get("PersistentVolume", [])}
        self.classes = {c["metadata"]["name"]: c for c in by.get("StorageClass", [])}
        self.csi = {c["metadata"]["name"]: c for c in by.get("CSINode", [])}
        self.namespaces = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in by.get("Namespace", [])}
        self.types = {t["name"]: t for t in document["instanceTypes"]}
        self.allowed = document.get("instanceTypesForNodePool") or {}
        self.bound: dict[str, list[Raw]] = {}
        for p in self.pods.values():
            if p["spec"].get("nodeName"):
                self.bound.setdefault(p["spec"]["nodeName"], []).append(p)
        self.pending = {
            k: p
            for k, p in self.pods.items()
            if not p["spec"].get("nodeName")
            and not any(o.get("kind") == "DaemonSet" for o in p["metadata"].get("ownerReferences") or [])
        }
        self.problems: list[str] = []
        # host → where it may stand: one label map for a node, several for a claim
        self.hosts: list[tuple[str, list[Raw], list[Raw]]] = []
        self.taints: dict[str, list[Raw]] = {n: o["spec"].get("taints") or [] for n, o in self.nodes.items()}
        self._memo: dict[Any, bool] = {}
        self._spec_ids: dict[str, int] = {}
        self._ids: dict[int, int] = {}
        self.pool_domains: dict[tuple[Any, ...], set[str]] = {}

    def say(self, text: str) -> None:
        self.problems.append(text)

    def spec_id(self, pod: Raw) -> int:
        found = self._ids.get(id(pod))
        if found is None:
            spec = {
                k: v
                for k, v in pod["spec"].items()
                if k in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
            }
            text = json.dumps([pod["metadata"].get("namespace"), labels_of(pod), spec], sort_keys=True)
            found = self._ids[id(pod)] = self._spec_ids.setdefault(text, len(self._spec_ids))
        return found

    # --- machines ---

    def type_labels(self, name: str) -> Raw:
        t = self.types[name]
        os = t.get("os") or []
        return {
            **{canonical(k): v for k, v in (t.get("labels") or {}).items()},
            "node.kubernetes.io/instance-type": name,
            "kubernetes.io/arch": t.get("arch"),
            "kubernetes.io/os": os if isinstance(os, str) else (os[0] if os else None),
        }

    def pool_requirements(self, pool: Raw) -> list[Raw]:
        return list(pool["spec"]["template"]["spec"].get("requirements") or [])

    def variants(self, claim: Raw) -> list[tuple[str, Raw, float]]:
        """Every (type, labels, price) as which the claim may come up."""
        pool = self.pools[claim["nodePool"]]
        own = {
            **(((pool["spec"]["template"].get("metadata") or {}).get("labels")) or {}),
            **claim["labels"],
            "karpenter.sh/nodepool": claim["nodePool"],
        }
        found = []
        for name in claim["instanceTypes"]:
            base = {**own, **self.type_labels(name)}
            for o in self.types[name]["offerings"]:
                labels = {**base, ZONE: o["zone"], CAPACITY_TYPE: o["capacityType"], **(o.get("labels") or {})}
                if o.get("available", True) and all(expression(r, labels) for r in claim["requirements"]):
                    found.append((name, labels, o["price"]))
        return found

    def daemon_load(self, labels: Raw, taints: list[Raw]) -> tuple[Counter[str], list[tuple[str, str, int]]]:
        total: Counter[str] = Counter()
        ports: list[tuple[str, str, int]] = []
        for d in self.daemons:
            spec = d["spec"]["template"]["spec"]
            if node_matches(spec, labels) and not repelled(spec, taints):
                total = plus(total, requests(spec))
                ports += ports_of(spec)
        return total, ports

    def volume_terms(self, pod: Raw) -> list[list[list[Raw]]] | None:
        """For each volume its alternatives, each a list of expressions; None if one can't be mounted."""
        found = []
        for v in pod["spec"].get("volumes") or []:
            source = v.get("persistentVolumeClaim")
            if source is None:
                continue
            claim = self.claims.get(f"{pod['metadata'].get('namespace') or 'default'}/{source['claimName']}")
            if claim is None:
                return None
            if claim["spec"].get("volumeName"):
                volume = self.volumes.get(claim["spec"]["volumeName"])
                if volume is None:
                    return None
                required = (volume["spec"].get("nodeAffinity") or {}).get("required")
                if required:
                    found.append([t.get("matchExpressions") or [] for t in required["nodeSelectorTerms"]])
                continue
            storage = self.classes.get(claim["spec"].get("storageClassName"))
            if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
                return None
            if storage.get("allowedTopologies"):
                found.append(
                    [
                        [{"operator": "In", **e} for e in t["matchLabelExpressions"]]
                        for t in storage["allowedTopologies"]
                    ]
                )
        return found

    def may_stand(self, pod: Raw, labels: Raw) -> bool:
        if not node_matches(pod["spec"], labels):
            return False
        if not pod["spec"].get("volumes"):
            return True
        terms = self.volume_terms(pod)
        return terms is not None and all(
            any(all(expression(e, labels) for e in alternative) for alternative in volume) for volume in terms
        )

    # --- checks ---

    def check(self) -> list[str]:
        self.check_once()
        for claim in self.decision["nodeClaims"]:
            self.check_claim(claim)
        for name, keys in self.decision["existingNodes"].items():
            self.check_node(name, [self.pods[k] for k in keys])
        placed = set(self.decision["existingNodes"])
        for name in self.nodes:
            if name not in placed:
                self.hosts.append((name, [self.node_labels(name)], self.bound.get(name, [])))
        self.check_limits()
        self.check_topology()
        return self.problems

    def check_once(self) -> None:
        seen: Counter[str] = Counter()
        for claim in self.decision["nodeClaims"]:
            seen.update(claim["pods"])
        for keys in self.decision["existingNodes"].values():
            seen.update(keys)
        seen.update(k for k in self.decision["errors"] if k in self.pending)
        for k in self.pending:
            if seen[k] != 1:
                self.say(f"{k} is placed or refused {seen[k]} times")
        for k in seen:
            if k not in self.pending:
                self.say(f"{k} is no pending pod")

    def check_claim(self, claim: Raw) -> None:  # noqa: C901, PLR0912, PLR0915 (one rule after the other)
        name = f"claim {claim['nodePool']} of {claim['pods'][0] if claim['pods'] else '?'}"
        pool = self.pools[claim["nodePool"]]
        types = claim["instanceTypes"]
        if not types or len(types) > 60 or len(set(types)) != len(types):
            self.say(f"{name}: {len(types)} types")
            return
        allowed = self.allowed.get(claim["nodePool"])
        if allowed is not None and not set(types) <= set(allowed):
            self.say(f"{name}: types that the pool doesn't have")
        variants = self.variants(claim)
        by_type: dict[str, float] = {}
        for t, _, price in variants:
            by_type[t] = min(price, by_type.get(t, price))
        if set(by_type) != set(types):
            self.say(f"{name}: no available offering for {set(types) - set(by_type)}")
            return
        prices = [by_type[t] for t in types]
        if prices != sorted(prices):
            self.say(f"{name}: not cheapest first")
        if abs(claim["cheapest"]["price"] - min(prices)) > 1e-9:
            self.say(f"{name}: cheapest is {min(prices)}, not {claim['cheapest']['price']}")
        taints = pool["spec"]["template"]["spec"].get("taints") or []
        pods = [self.pods[k] for k in claim["pods"]]
        total = plus(*(requests(p["spec"]) for p in pods))
        used_ports = [ports_of(p["spec"]) for p in pods if ports_of(p["spec"])]
        for i, a in enumerate(used_ports):
            if any(clash(a, b) for b in used_ports[:i]):
                self.say(f"{name}: ports clash")
        custom = json.dumps(claim["labels"], sort_keys=True)
        wanted = self.pool_requirements(pool)
        loads: dict[Any, tuple[Counter[str], list[tuple[str, str, int]]]] = {}
        for t, labels, _ in variants:
            place = (t, labels[ZONE], labels[CAPACITY_TYPE])
            if not all(expression(r, labels) for r in wanted):
                self.say(f"{name}: {place} is not allowed by the pool")
                return
            load_key = (claim["nodePool"], custom, *place)
            if load_key not in loads:
                loads[load_key] = self.daemon_load(labels, taints)
            load, ports = loads[load_key]
            need = plus(total, load)
            size, overhead = self.sizes(t)
            short = [r for r, v in need.items() if v > size[r] - overhead[r] and v > 0]
            if short:
                self.say(f"{name}: {place} is too small in {short}")
                return
            if any(clash(ports, b) for b in used_ports):
                self.say(f"{name}: a port clashes with a daemon's on {place}")
            for p in pods:
                memo = (self.spec_id(p) if not p["spec"].get("volumes") else key_of(p), load_key)
                if memo not in self._memo:
                    self._memo[memo] = self.may_stand(p, labels)
                if not self._memo[memo]:
                    self.say(f"{name}: {key_of(p)} may not stand on {place}")
                    return
        for p in pods:
            if repelled(p["spec"], taints):
                self.say(f"{name}: {key_of(p)} doesn't tolerate its taints")
        if self.options.get("minValuesPolicy", "Strict") == "Strict":
            for r in wanted:
                if r.get("minValues"):
                    key = canonical(r["key"])
                    have = {labels.get(key) for _, labels, _ in variants}
                    if len(have) < r["minValues"]:
                        self.say(f"{name}: {len(have)} values of {key}, wanted {r['minValues']}")
        self.hosts.append((name, [labels for _, labels, _ in variants], pods))
        self.taints[name] = taints

    @cache  # noqa: B019 (one world lives as long as its check)
    def sizes(self, name: str) -> tuple[Counter[str], Counter[str]]:
        return amounts(self.types[name]["capacity"]), amounts(self.types[name].get("overhead"))

    def node_labels(self, name: str) -> Raw:
        labels = {canonical(k): v for k, v in (self.nodes[name]["metadata"].get("labels") or {}).items()}
        return {HOSTNAME: name, **labels}

    def check_node(self, name: str, pods: list[Raw]) -> None:
        node = self.nodes[name]
        labels = self.node_labels(name)
        taints = node["spec"].get("taints") or []
        running = self.bound.get(name, [])
        daemons = [
            p for p in running if any(o.get("kind") == "DaemonSet" for o in p["metadata"].get("ownerReferences") or [])
        ]
        load, ports = self.daemon_load(labels, taints)
        have = plus(*(requests(p["spec"]) for p in daemons))
        coming = Counter({k: max(Fraction(0), v - have[k]) for k, v in load.items()})
        need = plus(*(requests(p["spec"]) for p in (*running, *pods)), coming)
        size = amounts(node["status"]["allocatable"])
        short = [r for r, v in need.items() if v > size[r] and v > 0]
        if short:
            self.say(f"{name} is too small in {short}")
        taken = [ports_of(p["spec"]) for p in running] + [ports]
        for p in pods:
            if not self.may_stand(p, labels):
                self.say(f"{key_of(p)} may not stand on {name}")
            if repelled(p["spec"], taints):
                self.say(f"{key_of(p)} doesn't tolerate the taints of {name}")
            mine = ports_of(p["spec"])
            if any(clash(mine, b) for b in taken):
                self.say(f"{key_of(p)}: its port is taken on {name}")
            taken.append(mine)
        self.check_attached(name, [*running, *pods])
        self.hosts.append((name, [labels], [*running, *pods]))

    def check_attached(self, name: str, pods: list[Raw]) -> None:
        for driver in (self.csi.get(name) or {"spec": {"drivers": []}})["spec"]["drivers"]:
            limit = (driver.get("allocatable") or {}).get("count")
            mounted = set()
            for p in pods:
                for v in p["spec"].get("volumes") or []:
                    source = v.get("persistentVolumeClaim")
                    if source:
                        mounted.add((p["metadata"].get("namespace"), source["claimName"]))
            if limit is not None and len(mounted) > limit:
                self.say(f"{name} attaches {len(mounted)} volumes, {limit} allowed")

    def check_limits(self) -> None:
        for name, pool in self.pools.items():
            limits = amounts(pool["spec"].get("limits"))
            mine = [c for c in self.decision["nodeClaims"] if c["nodePool"] == name]
            if not limits or not mine:
                continue
            used = plus(
                *(largest(*(self.sizes(t)[0] for t in c["instanceTypes"])) for c in mine),
                *(
                    amounts(n["status"].get("capacity"))
                    for n in self.nodes.values()
                    if n["metadata"]["labels"].get("karpenter.sh/nodepool") == name
                ),
            )
            used["nodes"] = len(mine) + sum(
                n["metadata"]["labels"].get("karpenter.sh/nodepool") == name for n in self.nodes.values()
            )
            for r, limit in limits.items():
                if used[r] > limit:
                    self.say(f"pool {name} has {float(used[r])} {r}, limit {float(limit)}")

    # --- topology ---

    def domains(self, host: int, key: str) -> frozenset[str]:
        memo = self._domains.get((host, key))
        if memo is None:
            name, variants, _ = self.hosts[host]
            memo = frozenset([f"host {name}"]) if key == HOSTNAME else frozenset(v[key] for v in variants if key in v)
            self._domains[host, key] = memo
        return memo

    def namespaces_of(self, term: Raw, pod: Raw) -> set[str]:
        own = pod["metadata"].get("namespace") or "default"
        selector = term.get("namespaceSelector")
        if selector is None:
            return set(term.get("namespaces") or [own])
        return set(term.get("namespaces") or []) | {
            n for n, labels in self.namespaces.items() if selected(selector, labels)
        }

    def count(
        self,
        key: str,
        selector: Raw | None,
        namespaces: set[str],
        fits: Callable[[str, list[Raw]], bool] = lambda *_: True,
        only: Callable[[Raw], bool] = lambda _: True,
    ) -> Counter[str]:
        """How many selected pods stand in each domain; one that may stand in several is counted in each."""
        total: Counter[str] = Counter()
        for h, (name, variants, pods) in enumerate(self.hosts):
            if not fits(name, variants):
                continue
            n = sum(
                (p["metadata"].get("namespace") or "default") in namespaces
                and selected(selector, labels_of(p))
                and only(p)
                for p in pods
            )
            if n:
                for d in self.domains(h, key):
                    total[d] += n
        return total

    def check_topology(self) -> None:
        self._domains: dict[tuple[int, str], frozenset[str]] = {}
        self._met: dict[Any, Any] = {}
        for h, (name, _, pods) in enumerate(self.hosts):
            for p in pods:
                affinity = p["spec"].get("affinity") or {}
                pending = key_of(p) in self.pending
                for term in (affinity.get("podAntiAffinity") or {}).get(
                    "requiredDuringSchedulingIgnoredDuringExecution"
                ) or []:
                    if self.beside(h, p, term):
                        self.say(f"{key_of(p)} on {name}: one that it avoids is within {term['topologyKey']}")
                if not pending:
                    continue
                for term in (affinity.get("podAffinity") or {}).get(
                    "requiredDuringSchedulingIgnoredDuringExecution"
                ) or []:
                    if not self.together(h, p, term):
                        self.say(f"{key_of(p)} on {name}: nobody that it needs is within {term['topologyKey']}")
                for c in p["spec"].get("topologySpreadConstraints") or []:
                    if c["whenUnsatisfiable"] == "DoNotSchedule" and not self.even(h, p, c):
                        self.say(f"{key_of(p)} on {name}: uneven over {c['topologyKey']}")

    def counted(self, term: Raw, pod: Raw) -> Counter[str]:
        key = canonical(term["topologyKey"])
        namespaces = self.namespaces_of(term, pod)
        memo = (key, json.dumps(term.get("labelSelector"), sort_keys=True), tuple(sorted(namespaces)))
        if memo not in self._met:
            self._met[memo] = self.count(key, term.get("labelSelector"), namespaces)
        found: Counter[str] = self._met[memo]
        return found

    def matches_self(self, term: Raw, pod: Raw) -> bool:
        return (pod["metadata"].get("namespace") or "default") in self.namespaces_of(term, pod) and selected(
            term.get("labelSelector"), labels_of(pod)
        )

    def beside(self, host: int, pod: Raw, term: Raw) -> bool:
        counts = self.counted(term, pod)
        key = canonical(term["topologyKey"])
        return any(counts[d] - self.matches_self(term, pod) > 0 for d in self.domains(host, key))

    def together(self, host: int, pod: Raw, term: Raw) -> bool:
        counts = self.counted(term, pod)
        mine = self.domains(host, canonical(term["topologyKey"]))
        itself = self.matches_self(term, pod)
        if len(mine) == 1 and counts[next(iter(mine))] - itself > 0:
            return True
        return itself and sum(counts.values()) == len(mine) and bool(mine)

    def even(self, host: int, pod: Raw, c: Raw, *, at_the_end: bool = False) -> bool:
        """Whether a spread constraint holds; unless it must at the end, in some order of binding.

        By then every pod may stand elsewhere, but in its own domain no more than those that run or hold the same rule.
        """
        key = canonical(c["topologyKey"])
        mine = self.domains(host, key)
        if len(mine) != 1:
            return False
        own = pod["spec"].get("volumes") and key_of(pod)
        memo = ("even", at_the_end, self.spec_id(pod), own, json.dumps(c, sort_keys=True))
        if memo not in self._met:
            selector = json.loads(json.dumps(c.get("labelSelector")))
            for k in c.get("matchLabelKeys") or []:
                if k in labels_of(pod):
                    selector.setdefault("matchExpressions", []).append(
                        {"key": k, "operator": "In", "values": [labels_of(pod)[k]]}
                    )
            honor = c.get("nodeAffinityPolicy", "Honor") == "Honor"
            honor_taints = c.get("nodeTaintsPolicy", "Ignore") == "Honor"

            def counts_here(name: str, variants: list[Raw]) -> bool:
                if honor_taints and repelled(pod["spec"], self.taints[name]):
                    return False
                return not honor or any(node_matches(pod["spec"], v) for v in variants)

            def holds(other: Raw) -> bool:
                rules = other["spec"].get("topologySpreadConstraints") or []
                alike = ("topologyKey", "whenUnsatisfiable", "labelSelector")
                return key_of(other) not in self.pending or any(all(r.get(k) == c.get(k) for k in alike) for r in rules)

            spaces = {pod["metadata"].get("namespace") or "default"}
            counts = self.count(key, selector, spaces, counts_here)
            here = counts if at_the_end else self.count(key, selector, spaces, counts_here, holds)
            least = 0
            if key != HOSTNAME:
                domains = self.eligible(pod, key, c)
                least = min((counts[d] for d in domains), default=0)
                if c.get("minDomains") and len(domains) < c["minDomains"]:
                    least = 0
            self._met[memo] = (here, least)
        here, least = self._met[memo]
        return bool(here[next(iter(mine))] - least <= c["maxSkew"])

    def eligible(self, pod: Raw, key: str, c: Raw) -> set[str]:
        """The domains that nodes for this pod may have; its own and its volumes' word on the key always holds."""
        found = set()
        honor_affinity = c.get("nodeAffinityPolicy", "Honor") == "Honor"
        honor_taints = c.get("nodeTaintsPolicy", "Ignore") == "Honor"
        for name, pool in self.pools.items():
            taints = pool["spec"]["template"]["spec"].get("taints") or []
            if honor_taints and repelled(pod["spec"], taints):
                continue
            own = {
                **((pool["spec"]["template"].get("metadata") or {}).get("labels") or {}),
                "karpenter.sh/nodepool": name,
            }
            for labels in self.machines(name, pool, own):
                said = key in labels and self.word_on(pod, key, labels[key])
                if said and (not honor_affinity or self.may_stand(pod, labels)):
                    found.add(labels[key])
        for n in self.nodes:
            labels = self.node_labels(n)
            if key in labels and self.word_on(pod, key, labels[key]):
                if honor_taints and repelled(pod["spec"], self.nodes[n]["spec"].get("taints") or []):
                    continue
                if not honor_affinity or self.may_stand(pod, labels):
                    found.add(labels[key])
        return found

    def word_on(self, pod: Raw, key: str, value: str) -> bool:
        """Whether the pod's own selector, any term of its affinity, and each volume allow this value of the key."""

        def any_of(terms: list[list[Raw]]) -> bool:
            return any(all(expression(e, {key: value}) for e in t if canonical(e["key"]) == key) for t in terms)

        selector = (pod["spec"].get("nodeSelector") or {}).items()
        required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        terms = [t.get("matchExpressions") or [] for t in required["nodeSelectorTerms"]] if required else [[]]
        return (
            all(v == value for k, v in selector if canonical(k) == key)
            and any_of(terms)
            and all(any_of(volume) for volume in self.volume_terms(pod) or [])
        )

    def machines(self, name: str, pool: Raw, own: Raw) -> list[Raw]:
        memo = ("machines", name)
        if memo not in self._met:
            wanted = self.pool_requirements(pool)
            known = {k for t in self.types.values() for k in t.get("labels") or {}} | {ZONE, CAPACITY_TYPE}
            customs = [own]
            for r in wanted:
                if r["operator"] == "In" and canonical(r["key"]) not in known:
                    customs = [{**one, r["key"]: v} for one in customs for v in r["values"]]
            found = []
            for t in self.types.values():
                if name in self.allowed and t["name"] not in self.allowed[name]:
                    continue
                for o in t["offerings"]:
                    if not o.get("available", True):
                        continue
                    for custom in customs:
                        labels = {
                            **custom,
                            **self.type_labels(t["name"]),
                            ZONE: o["zone"],
                            CAPACITY_TYPE: o["capacityType"],
                        }
                        others = [r for r in wanted if r["key"] in labels]
                        if all(expression(r, labels) for r in others):
                            found.append(labels)
            self._met[memo] = found
        return list(self._met[memo])

    def preferences_met(self) -> int:
        """Preferred affinities and ScheduleAnyway constraints that hold on the final state, counted by pod."""
        met = 0
        for h, (_, variants, pods) in enumerate(self.hosts):
            for p in pods:
                if key_of(p) not in self.pending:
                    continue
                affinity = p["spec"].get("affinity") or {}
                preferred = "preferredDuringSchedulingIgnoredDuringExecution"
                for w in (affinity.get("nodeAffinity") or {}).get(preferred) or []:
                    met += all(
                        all(expression(e, v) for e in w["preference"].get("matchExpressions") or []) for v in variants
                    )
                for w in (affinity.get("podAffinity") or {}).get(preferred) or []:
                    t = w["podAffinityTerm"]
                    mine = self.domains(h, canonical(t["topologyKey"]))
                    counts = self.counted(t, p)
                    met += len(mine) == 1 and counts[next(iter(mine))] - self.matches_self(t, p) > 0
                for w in (affinity.get("podAntiAffinity") or {}).get(preferred) or []:
                    met += not self.beside(h, p, w["podAffinityTerm"])
                for c in p["spec"].get("topologySpreadConstraints") or []:
                    met += c["whenUnsatisfiable"] == "ScheduleAnyway" and self.even(h, p, c, at_the_end=True)
        return met


def check(document: Raw, decision: Raw) -> list[str]:
    """Every rule that the decision breaks, in words; empty if it is right."""
    return World(document, decision).check()


def preferences_met(document: Raw, decision: Raw) -> int:
    """How many preferences of pods hold."""
    world = World(document, decision)
    world.check()
    return world.preferences_met()
