"""Whether a refused pod could have had a machine to itself: brute force over pools, types and offerings by the judge.

To each refused pod, one more claim is put beside all that was decided; where the judge finds nothing wrong with the
whole, the pod was refused idly. Pods that wait for one another are beyond this: each is tried alone.
"""

from __future__ import annotations

from typing import Any

from tests.scenarios.checker import (
    CAPACITY_TYPE,
    ZONE,
    World,
    canonical,
    check,
    expression,
    plus,
    repelled,
    requests,
)

Raw = dict[str, Any]


def could_stand_alone(document: Raw, decision: Raw) -> dict[str, Raw]:
    """The refused pods for which a machine of their own would have been right, each with such a claim."""
    world = World(document, decision)
    found: dict[str, Raw] = {}
    tried: set[int] = set()
    for key in decision["errors"]:
        pod = world.pods[key]
        if pod["spec"].get("volumes") or world.spec_id(pod) not in tried:
            tried.add(world.spec_id(pod))
            for claim in _claims(world, key, pod):
                errors = {k: v for k, v in decision["errors"].items() if k != key}
                other = dict(decision, nodeClaims=[*decision["nodeClaims"], claim], errors=errors)
                if not check(document, other):
                    found[key] = claim
                    break
    return found


def _claims(world: World, key: str, pod: Raw) -> list[Raw]:
    found: list[Raw] = []
    for name, pool in world.pools.items():
        if not repelled(pod["spec"], pool["spec"]["template"]["spec"].get("taints") or []):
            for labels in _customs(world, pool):
                found += _in_pool(world, key, pod, name, labels)
    return found


def _customs(world: World, pool: Raw) -> list[Raw]:
    """The labels that a node of the pool may have besides those of its type: each value of each key in turn."""
    known = {canonical(k) for t in world.types for k in world.type_labels(t)} | {ZONE, CAPACITY_TYPE}
    fixed = dict((pool["spec"]["template"].get("metadata") or {}).get("labels") or {})
    found = [fixed]
    for r in world.pool_requirements(pool):
        if r["operator"] == "In" and canonical(r["key"]) not in known:
            found = [{**one, r["key"]: value} for one in found for value in r["values"]]
    return found


def _in_pool(world: World, key: str, pod: Raw, name: str, custom: Raw) -> list[Raw]:
    """For each offering one claim of all types that hold the pod there, and one of the cheapest alone."""
    pool = world.pools[name]
    taints = pool["spec"]["template"]["spec"].get("taints") or []
    wanted = world.pool_requirements(pool)
    need = requests(pod["spec"])
    fit: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for t in world.allowed.get(name, world.types):
        size, overhead = world.sizes(t)
        for o in world.types[t]["offerings"]:
            labels = {**custom, **world.type_labels(t), "karpenter.sh/nodepool": name}
            labels |= {ZONE: o["zone"], CAPACITY_TYPE: o["capacityType"]}
            load, _ = world.daemon_load(labels, taints)
            if (
                o.get("available", True)
                and all(expression(r, labels) for r in wanted)
                and world.may_stand(pod, labels)
                and all(v <= size[r] - overhead[r] for r, v in plus(need, load).items() if v > 0)
            ):
                fit.setdefault((o["zone"], o["capacityType"]), []).append((o["price"], t))
    found: list[Raw] = []
    for (zone, capacity_type), priced in sorted(fit.items()):
        types = sorted(priced)[:60]
        for some in (types, types[:1]):
            price, cheapest = some[0]
            offer = {"instanceType": cheapest, "zone": zone, "capacityType": capacity_type, "price": price}
            found.append(
                {
                    "nodePool": name,
                    "pods": [key],
                    "instanceTypes": [t for _, t in some],
                    "requirements": [
                        {"key": ZONE, "operator": "In", "values": [zone]},
                        {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
                    ],
                    "labels": custom,
                    "taints": taints,
                    "requests": {},
                    "cheapest": offer,
                }
            )
    return found
