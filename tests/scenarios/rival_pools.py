"""A pool as the rival sees it: every type in every offering, with every value of the labels that it leaves open.

Apart from the rival itself so that each can be read alone. Reads raw objects by the judge's rules.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Sizes = NDArray[np.int64]

Raw = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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


def vector(resources: list[str], amounts: Counter[str]) -> Sizes:
    """Amounts in thousandths, rounded up."""
    return np.array([-(-amounts[r] * 1000 // 1) for r in resources], np.int64)


def pool_of(checker: ModuleType, world: Any, resources: list[str], raw: Raw) -> Pool:  # noqa: ANN401 (the judge's World)
    """What may be bought from a pool, what of it pods get, and what its limits leave."""
    template = raw["spec"]["template"]
    taints = template["spec"].get("taints") or []
    requirements = [{**r, "key": checker.canonical(r["key"])} for r in template["spec"].get("requirements") or []]
    fixed = {
        **((template.get("metadata") or {}).get("labels") or {}),
        "karpenter.sh/nodepool": raw["metadata"]["name"],
    }
    types, labels, type_of, price = _variants(checker, world, requirements, fixed)
    free, capacity, ports = [], [], []
    for at, name in enumerate(types):
        size, overhead = world.sizes(name)
        mine = [v for v, n in zip(labels, type_of, strict=True) if n == at]
        load: Counter[str] = Counter()
        for d in world.daemons:
            spec = d["spec"]["template"]["spec"]
            if not checker.repelled(spec, taints) and any(checker.node_matches(spec, v) for v in mine):
                load = checker.plus(load, checker.requests(spec))
                ports += checker.ports_of(spec)
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
        left=_left(checker, world, raw),
        fixed=fixed,
    )


def _left(checker: ModuleType, world: Any, raw: Raw) -> dict[str, int]:  # noqa: ANN401 (the judge's World)
    name = raw["metadata"]["name"]
    mine = [n for n in world.nodes.values() if n["metadata"]["labels"].get("karpenter.sh/nodepool") == name]
    used = checker.plus(*(checker.amounts(n["status"].get("capacity")) for n in mine))
    used["nodes"] = len(mine)
    return {r: int((v - used[r]) * 1000) for r, v in checker.amounts(raw["spec"].get("limits")).items()}


def _variants(
    checker: ModuleType,
    world: Any,  # noqa: ANN401 (the judge's World)
    requirements: list[Raw],
    fixed: Raw,
) -> tuple[list[str], list[Raw], list[int], list[float]]:
    types: list[str] = []
    labels: list[Raw] = []
    type_of: list[int] = []
    price: list[float] = []
    choices = _choices(checker, world, requirements, fixed)
    allowed = world.allowed.get(fixed["karpenter.sh/nodepool"])
    offered = [
        (t["name"], o, choice)
        for t in world.types.values()
        if allowed is None or t["name"] in allowed
        for o in t["offerings"]
        if o.get("available", True)
        for choice in choices
    ]
    for name, o, choice in offered:
        variant = {
            **fixed,
            **choice,
            **world.type_labels(name),
            checker.ZONE: o["zone"],
            checker.CAPACITY_TYPE: o["capacityType"],
            **(o.get("labels") or {}),
        }
        if all(checker.expression(r, variant) for r in requirements):
            if not types or types[-1] != name:
                types.append(name)
            labels.append(variant)
            type_of.append(len(types) - 1)
            price.append(o["price"])
    return types, labels, type_of, price


def _choices(checker: ModuleType, world: Any, requirements: list[Raw], fixed: Raw) -> list[Raw]:  # noqa: ANN401 (the judge's World)
    """The values of labels that only the pool defines, in every combination."""
    known = {checker.canonical(k) for t in world.types.values() for k in t.get("labels") or {}} | {
        checker.ZONE,
        checker.CAPACITY_TYPE,
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
    }
    choices: list[Raw] = [{}]
    for r in requirements:
        if r["key"] not in known and r["operator"] in {"In", "Exists"} and r["key"] not in fixed:
            values = r["values"] if r["operator"] == "In" else _mentioned(world, r["key"])
            choices = [{**c, r["key"]: v} for c in choices for v in values]
    return choices


def _mentioned(world: Any, key: str) -> list[str]:  # noqa: ANN401 (the judge's World)
    """The values that pods ask for, and one that none does."""
    found = {"any"}
    for pod in world.pending.values():
        for r in expressions_of(pod["spec"]):
            if r["key"] == key:
                found |= set(r.get("values") or [])
    return sorted(found)


def selector_of(spec: Raw) -> list[Raw]:
    return [{"key": k, "operator": "In", "values": [v]} for k, v in (spec.get("nodeSelector") or {}).items()]


def expressions_of(spec: Raw) -> list[Raw]:
    """The node selector and, where it is but one, the required term."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    terms = required.get("nodeSelectorTerms") or []
    return [*selector_of(spec), *(terms[0].get("matchExpressions") or [] if len(terms) == 1 else [])]
