"""A NodePool as the re-enacted Karpenter uses it: every type in every offering, with every value of open labels."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.scenarios.kubernetes_rules import (
    CAPACITY_TYPE,
    ZONE,
    amounts,
    canonical,
    expression,
    labels_of,
    node_affinity_matches,
    node_selector_terms,
    plus,
    ports_of,
    repelled,
    requests,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.scenarios.cluster import Cluster

    Mask = NDArray[np.bool_]
    Sizes = NDArray[np.int64]

Raw = dict[str, Any]


@dataclass(eq=False)
class Pool:
    """A pool's variants: every type in every offering, with every value of the labels that it leaves open."""

    name: str
    raw: Raw
    taints: list[Raw]
    requirements: list[Raw]
    labels: list[Raw]
    type_of: Sizes
    price: NDArray[np.float64]
    types: list[str]
    free: Sizes
    capacity: Sizes
    ports: list[tuple[str, str, int]]
    left: dict[str, int]
    fixed: Raw
    masks: dict[str, Mask] = field(default_factory=dict)

    def mask(self, expressions: list[Raw]) -> Mask:
        """Which variants meet all expressions."""
        name = json.dumps(expressions, sort_keys=True)
        known = self.masks.get(name)
        if known is None:
            matches = [all(expression(e, labels) for e in expressions) for labels in self.labels]
            known = self.masks[name] = np.array(matches, np.bool_).reshape(len(self.labels))
        return known

    def domains(self, key: str) -> set[str]:
        """The values of a label among all variants."""
        return {labels[key] for labels in self.labels if key in labels}

    def has_min_values(self, alive: Mask) -> bool:
        """Whether the variants that are left have as many values of each key as minValues requires."""
        for r in self.requirements:
            if r.get("minValues"):
                values = {labels.get(r["key"]) for labels, ok in zip(self.labels, alive, strict=True) if ok}
                if len(values) < r["minValues"]:
                    return False
        return True


def vector(resources: list[str], quantities: Counter[str]) -> Sizes:
    """Amounts in thousandths, rounded up."""
    return np.array([-(-quantities[r] * 1000 // 1) for r in resources], np.int64)


def pool_of(cluster: Cluster, resources: list[str], raw: Raw) -> Pool:
    """The nodes that a pool may launch, their free capacity for pods, and what the pool's limits leave."""
    template = raw["spec"]["template"]
    taints = cluster.pool_taints(raw["metadata"]["name"])
    requirements = [{**r, "key": canonical(r["key"])} for r in template["spec"].get("requirements") or []]
    fixed = cluster.pool_labels(raw["metadata"]["name"])
    types, labels, type_of, price = _variants(cluster, requirements, fixed)
    free, capacity, ports = [], [], []
    for at, name in enumerate(types):
        size, overhead = cluster.sizes(name)
        variants = [v for v, n in zip(labels, type_of, strict=True) if n == at]
        load: Counter[str] = Counter()
        for d in cluster.daemons:
            spec = d["spec"]["template"]["spec"]
            if not repelled(spec, taints) and any(node_affinity_matches(spec, v) for v in variants):
                load = plus(load, requests(spec))
                ports += ports_of(spec)
        capacity.append(vector(resources, size))
        free.append(vector(resources, size) - vector(resources, overhead) - vector(resources, load))
    shape = (len(types), len(resources))
    return Pool(
        name=raw["metadata"]["name"],
        raw=raw,
        taints=taints,
        requirements=requirements,
        labels=labels,
        type_of=np.array(type_of, np.int64),
        price=np.array(price),
        types=types,
        free=np.array(free).reshape(shape),
        capacity=np.array(capacity).reshape(shape),
        ports=list(set(ports)),
        left=_left(cluster, raw),
        fixed=fixed,
    )


def _left(cluster: Cluster, raw: Raw) -> dict[str, int]:
    name = raw["metadata"]["name"]
    nodes = [n for n in cluster.nodes.values() if labels_of(n).get("karpenter.sh/nodepool") == name]
    used = plus(*(amounts(n["status"].get("capacity")) for n in nodes))
    used["nodes"] = len(nodes)
    return {r: int((v - used[r]) * 1000) for r, v in amounts(raw["spec"].get("limits")).items()}


def _variants(
    cluster: Cluster,
    requirements: list[Raw],
    fixed: Raw,
) -> tuple[list[str], list[Raw], list[int], list[float]]:
    types: list[str] = []
    labels: list[Raw] = []
    type_of: list[int] = []
    price: list[float] = []
    choices = _choices(cluster, requirements, fixed)
    allowed = cluster.allowed.get(fixed["karpenter.sh/nodepool"])
    offered = [
        (t["name"], o, choice)
        for t in cluster.types.values()
        if allowed is None or t["name"] in allowed
        for o in cluster.offerings(t["name"])
        for choice in choices
    ]
    for name, o, choice in offered:
        variant = {
            **fixed,
            **choice,
            **cluster.type_labels(name),
            ZONE: o["zone"],
            CAPACITY_TYPE: o["capacityType"],
            **(o.get("labels") or {}),
        }
        if all(expression(r, variant) for r in requirements):
            if not types or types[-1] != name:
                types.append(name)
            labels.append(variant)
            type_of.append(len(types) - 1)
            price.append(o["price"])
    return types, labels, type_of, price


def _choices(cluster: Cluster, requirements: list[Raw], fixed: Raw) -> list[Raw]:
    """The values of labels that only the pool defines, in every combination."""
    known = {canonical(k) for t in cluster.types.values() for k in t.get("labels") or {}} | {
        ZONE,
        CAPACITY_TYPE,
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
    }
    choices: list[Raw] = [{}]
    for r in requirements:
        if r["key"] not in known and r["operator"] in {"In", "Exists"} and r["key"] not in fixed:
            values = r["values"] if r["operator"] == "In" else _mentioned(cluster, r["key"])
            choices = [{**c, r["key"]: v} for c in choices for v in values]
    return choices


def _mentioned(cluster: Cluster, key: str) -> list[str]:
    """The values that pods require, and one that none requires."""
    values = {"any"}
    for pod in cluster.pending.values():
        for r in expressions_of(pod["spec"]):
            if r["key"] == key:
                values |= set(r.get("values") or [])
    return sorted(values)


def selector_of(spec: Raw) -> list[Raw]:
    return [{"key": k, "operator": "In", "values": [v]} for k, v in (spec.get("nodeSelector") or {}).items()]


def expressions_of(spec: Raw) -> list[Raw]:
    """The node selector and, where it is but one, the required term."""
    terms = node_selector_terms(spec)
    return [*selector_of(spec), *(terms[0] if len(terms) == 1 else [])]
