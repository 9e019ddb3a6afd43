"""Whether an unschedulable pod could have had a node to itself: brute force over pools, types and offerings.

For each unschedulable pod, one more claim is added to the decision. If the checker accepts the result, the pod should
have been placed. Pods that depend on one another are out of scope: each is tried alone.
"""

from __future__ import annotations

from typing import Any

from tests.scenarios.checker import MOST_TYPES, check
from tests.scenarios.cluster import Cluster
from tests.scenarios.kubernetes_rules import (
    CAPACITY_TYPE,
    ZONE,
    canonical,
    expression,
    plus,
    repelled,
    requests,
)

Raw = dict[str, Any]


def could_run_alone(document: Raw, decision: Raw) -> dict[str, Raw]:
    """The unschedulable pods for which a node of their own would have been right, each with such a claim."""
    cluster = Cluster(document)
    placeable: dict[str, Raw] = {}
    tried: set[int] = set()
    for key in decision["errors"]:
        pod = cluster.pods[key]
        if pod["spec"].get("volumes") or cluster.spec_id(pod) not in tried:
            tried.add(cluster.spec_id(pod))
            for claim in _claims(cluster, key, pod):
                errors = {k: v for k, v in decision["errors"].items() if k != key}
                extended = dict(decision, nodeClaims=[*decision["nodeClaims"], claim], errors=errors)
                if not check(document, extended):
                    placeable[key] = claim
                    break
    return placeable


def _claims(cluster: Cluster, key: str, pod: Raw) -> list[Raw]:
    return [
        claim
        for name in cluster.pools
        if not repelled(pod["spec"], cluster.pool_taints(name))
        for labels in _custom_labels(cluster, name)
        for claim in _claims_of_pool(cluster, key, pod, name, labels)
    ]


def _custom_labels(cluster: Cluster, name: str) -> list[Raw]:
    """The labels that a node of the pool may have besides those of its type: each value of each key in turn."""
    pool = cluster.pools[name]
    known = {canonical(k) for t in cluster.types for k in cluster.type_labels(t)} | {ZONE, CAPACITY_TYPE}
    combinations = [dict((pool["spec"]["template"].get("metadata") or {}).get("labels") or {})]
    for r in cluster.pool_requirements(pool):
        if r["operator"] == "In" and canonical(r["key"]) not in known:
            combinations = [{**labels, r["key"]: value} for labels in combinations for value in r["values"]]
    return combinations


def _claims_of_pool(cluster: Cluster, key: str, pod: Raw, name: str, custom: Raw) -> list[Raw]:
    """For each offering one claim with all types that hold the pod there, and one with the cheapest alone."""
    claims: list[Raw] = []
    for (zone, capacity_type), priced in sorted(_types_by_offering(cluster, pod, name, custom).items()):
        cheapest_first = sorted(priced)[:MOST_TYPES]
        for types in (cheapest_first, cheapest_first[:1]):
            price, cheapest = types[0]
            claims.append(
                {
                    "nodePool": name,
                    "pods": [key],
                    "instanceTypes": [t for _, t in types],
                    "requirements": [
                        {"key": ZONE, "operator": "In", "values": [zone]},
                        {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
                    ],
                    "labels": custom,
                    "taints": cluster.pool_taints(name),
                    "requests": {},
                    "cheapest": {
                        "instanceType": cheapest,
                        "zone": zone,
                        "capacityType": capacity_type,
                        "price": price,
                    },
                }
            )
    return claims


def _types_by_offering(
    cluster: Cluster, pod: Raw, name: str, custom: Raw
) -> dict[tuple[str, str], list[tuple[float, str]]]:
    """Price and name of the types that hold the pod, by zone and capacity type."""
    requirements = cluster.pool_requirements(cluster.pools[name])
    need = requests(pod["spec"])
    fitting: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for type_name in cluster.allowed.get(name, cluster.types):
        size, overhead = cluster.sizes(type_name)
        for o in cluster.offerings(type_name):
            labels = {**custom, **cluster.type_labels(type_name), "karpenter.sh/nodepool": name}
            labels |= {ZONE: o["zone"], CAPACITY_TYPE: o["capacityType"]}
            load, _ = cluster.daemon_load(labels, cluster.pool_taints(name))
            if (
                all(expression(r, labels) for r in requirements)
                and cluster.may_run(pod, labels)
                and all(v <= size[r] - overhead[r] for r, v in plus(need, load).items() if v > 0)
            ):
                fitting.setdefault((o["zone"], o["capacityType"]), []).append((o["price"], type_name))
    return fitting
