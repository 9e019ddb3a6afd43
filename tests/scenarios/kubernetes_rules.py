"""Kubernetes' rules about single objects, on raw JSON: quantities, requests, selectors, taints, host ports.

Written apart from Tenon's code, so that the checker and the re-enacted Karpenter share nothing with what they judge.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

Raw = dict[str, Any]
HostPorts = list[tuple[str, str, int]]
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
def amount(text: str) -> Fraction | int:
    digits = text.rstrip("kKMGTim")
    exact = Fraction(digits) * Fraction(SUFFIXES[text[len(digits) :]])
    return exact.numerator if exact.denominator == 1 else exact


def amounts(raw: Raw | None) -> Counter[str]:
    return Counter({k: amount(str(v)) for k, v in (raw or {}).items()})


def plus(*many: Counter[str]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in many:
        for resource, value in counter.items():
            total[resource] += value
    return total


def largest(*many: Counter[str]) -> Counter[str]:
    resources = {resource for counter in many for resource in counter}
    return Counter({resource: max(counter[resource] for counter in many) for resource in resources})


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
            if value is None or not all(str(v).lstrip("-").isdigit() for v in (value, values[0])):
                return False
            a, b = int(value), int(values[0])
            return {"Gt": a > b, "Lt": a < b, "Gte": a >= b, "Lte": a <= b}[operator]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity_terms(spec: Raw, kind: str, strength: str) -> list[Raw]:
    """The terms of ``kind`` (podAffinity, podAntiAffinity, nodeAffinity) with that strength."""
    return ((spec.get("affinity") or {}).get(kind) or {}).get(strength) or []


def node_selector_terms(spec: Raw) -> list[list[Raw]]:
    """The expressions of each required term of the node affinity; one empty term where nothing is required."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return [t.get("matchExpressions") or [] for t in required["nodeSelectorTerms"]] if required is not None else [[]]


def node_affinity_matches(spec: Raw, labels: Raw) -> bool:
    """Whether nodeSelector and required node affinity allow a node with these labels; an empty term allows none."""
    if any(labels.get(canonical(k)) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    if ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) is None:
        return True
    return any(term and all(expression(e, labels) for e in term) for term in node_selector_terms(spec))


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


def selector_matches(selector: Raw | None, labels: Raw) -> bool:
    if selector is None:
        return False
    return all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items()) and all(
        expression(e, labels) for e in selector.get("matchExpressions") or []
    )


def key_of(pod: Raw) -> str:
    return f"{namespace_of(pod)}/{pod['metadata']['name']}"


def labels_of(pod: Raw) -> Raw:
    return pod["metadata"].get("labels") or {}


def ports_of(spec: Raw) -> HostPorts:
    return [
        (p.get("protocol", "TCP"), p.get("hostIP") or EVERYWHERE, p["hostPort"])
        for c in spec.get("containers") or []
        for p in c.get("ports") or []
        if p.get("hostPort")
    ]


def ports_conflict(a: HostPorts, b: HostPorts) -> bool:
    return any(p == q and n == m and (x == y or EVERYWHERE in (x, y)) for p, x, n in a for q, y, m in b)


def namespace_of(pod: Raw) -> str:
    return pod["metadata"].get("namespace") or "default"


def owned_by_daemon_set(pod: Raw) -> bool:
    return any(o.get("kind") == "DaemonSet" for o in pod["metadata"].get("ownerReferences") or [])


def claim_keys(pod: Raw) -> set[str]:
    """The PersistentVolumeClaims that the pod mounts, as namespace/name."""
    sources = [v.get("persistentVolumeClaim") for v in pod["spec"].get("volumes") or []]
    return {f"{namespace_of(pod)}/{source['claimName']}" for source in sources if source}
