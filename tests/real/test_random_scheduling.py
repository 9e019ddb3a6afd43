"""The embedded scheduler's filters decide as the real one's: random pods on random nodes, node by node.

The nodes and the pods on them are given, and no waiting pod is selected by another's rules, so each pod has one right
answer: whether it may run on its node, and the message if it may not.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from local.kubernetes import kinds
from shared.api.labels import HOSTNAME, ZONE
from tests.real.scheduling import Cluster, EmbeddedCluster, Json, RealCluster, add_node, add_pod

SEEDS = range(4)
NODES = ("n1", "n2", "n3", "n4", "n5")
PODS_EACH = 10
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize("seed", SEEDS)
def test_both_schedulers_filter_alike(real: RealCluster, seed: int) -> None:
    embedded = decisions(EmbeddedCluster(), seed)
    real.clear()

    assert decisions(real, seed) == embedded
    assert len(embedded) == PODS_EACH * (len(NODES) + 1)
    placed = sum(decision in NODES for decision in embedded.values())
    assert 0 < placed < PODS_EACH * len(NODES)


def decisions(cluster: Cluster, seed: int) -> dict[str, str]:
    """For each waiting pod, its node or the message why it has none. A pod of any node only says whether it has one."""
    rng = random.Random(seed)  # noqa: S311 - a problem of a test
    for name in NODES:
        add_node(cluster, name, cpu=rng.choice("248"), **_node(rng))
    for index in range(8):
        add_pod(cluster, f"bound-{index}", nodeName=rng.choice(NODES), **_bound_pod(rng))
    for index in range(PODS_EACH):
        spec = _pod(rng)
        add_pod(cluster, f"pod-{index}-on-any", labels={"waits": "yes"}, **spec)
        for node in NODES:
            restricted = {**spec, "nodeSelector": {**spec.get("nodeSelector", {}), HOSTNAME: node}}
            add_pod(cluster, f"pod-{index}-on-{node}", labels={"waits": "yes"}, **restricted)
    cluster.settle()
    pods = [pod for pod in cluster.store.list(kinds.PODS) if pod["metadata"]["labels"].get("waits")]
    return {pod["metadata"]["name"]: _decision(pod) for pod in pods}


def _decision(pod: Json) -> str:
    if node := pod["spec"].get("nodeName"):
        return "a node" if pod["metadata"]["name"].endswith("any") else str(node)
    conditions = pod["status"].get("conditions") or []
    message = next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")
    # Behind the filters' sentence, the real scheduler says why preemption and claims of devices don't help.
    return str(message).partition(". ")[0].removesuffix(".")


def _node(rng: random.Random) -> dict[str, Any]:
    labels = {"size": rng.choice("123")}
    if rng.random() < 0.6:
        labels["disk"] = rng.choice(("ssd", "hdd"))
    effects = ("NoSchedule", "PreferNoSchedule")
    taints = [{"key": "team", "value": rng.choice("xy"), "effect": rng.choice(effects)}] if rng.random() < 0.5 else []
    return {"zone": rng.choice("abc"), "labels": labels, "taints": taints}


def _bound_pod(rng: random.Random) -> dict[str, Any]:
    pod: dict[str, Any] = {"labels": {"app": rng.choice(("web", "db"))}, "cpu": rng.choice(("100m", "500m"))}
    if rng.random() < 0.1:
        # It keeps the waiting pods away from its node or zone.
        term = {"topologyKey": rng.choice((HOSTNAME, ZONE)), "labelSelector": {"matchLabels": {"waits": "yes"}}}
        pod["affinity"] = {"podAntiAffinity": {_REQUIRED: [term]}}
    return pod


def _pod(rng: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"affinity": {}}
    if rng.random() < 0.5:
        value = rng.choice(({"operator": "Exists"}, {"operator": "Equal", "value": rng.choice("xy")}))
        spec["tolerations"] = [{"key": "team", "effect": "NoSchedule", **value}]
    if rng.random() < 0.4:
        terms = [{"matchExpressions": [_requirement(rng)]} for _ in range(rng.choice((1, 1, 2)))]
        spec["affinity"]["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": terms}}
    if rng.random() < 0.2:
        spec["nodeSelector"] = {"disk": "ssd"}
    if rng.random() < 0.4:
        kind = rng.choice(("podAffinity", "podAntiAffinity"))
        spec["affinity"][kind] = {_REQUIRED: [_near(rng)]}
    if rng.random() < 0.5:
        spec["topologySpreadConstraints"] = [_spread(rng)]
    if rng.random() < 0.15:
        spec["cpu"] = "64"
    return spec


def _requirement(rng: random.Random) -> Json:
    return rng.choice((
        {"key": "disk", "operator": rng.choice(("In", "NotIn")), "values": ["ssd"]},
        {"key": "disk", "operator": rng.choice(("Exists", "DoesNotExist"))},
        {"key": "size", "operator": rng.choice(("Gt", "Lt")), "values": ["2"]},
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
    ))  # fmt: skip


def _near(rng: random.Random) -> Json:
    selector = {"matchLabels": {"app": rng.choice(("web", "db"))}}
    return {"topologyKey": rng.choice((HOSTNAME, ZONE)), "labelSelector": selector}


def _spread(rng: random.Random) -> Json:
    spread = {**_near(rng), "maxSkew": rng.choice((1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
    if rng.random() < 0.3:
        spread["minDomains"] = rng.choice((2, 4))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.4:
            spread[policy] = rng.choice(("Honor", "Ignore"))
    return spread
