"""Taints that other controllers put on starting nodes and take away: nodes are waited for, and no others are bought."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world.sample_objects import deployment, node_class, node_pool

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from local.world import World

LIMIT = timedelta(minutes=6)
SMALL = {"cpu": "300m", "memory": "128Mi"}
POOL = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["m5.xlarge"]}


def taints(node: dict[str, Any]) -> list[str]:
    return [taint["key"] for taint in node["spec"].get("taints") or []]


def initialized(world: World) -> list[tuple[str, str]]:
    return [
        (c["status"], c["reason"])
        for claim in world.claims()
        for c in claim["status"]["conditions"]
        if c["type"] == "Initialized"
    ]


def taint_nodes_that_join(world: World, key: str) -> None:
    """What a controller does that sees each new node: it adds its taint, which no NodePool names."""

    def see(change: Change) -> None:
        if change.kind.kind == "Node" and change.type == "ADDED":
            present = change.object["spec"].get("taints") or []
            taint = {"key": key, "value": "pending", "effect": "NoSchedule"}
            patch = {"spec": {"taints": [*present, taint]}}
            world.store.patch(kinds.NODES, change.object["metadata"]["name"], patch)

    world.store.subscribe(see)


@pytest.mark.parametrize(
    "key",
    [
        "readiness.k8s.io/NetworkReady",
        "node.cilium.io/agent-not-ready",
        "startup-taint.cluster-autoscaler.kubernetes.io/gpu",
    ],
)
def test_a_node_that_another_controller_has_tainted_is_waited_for_with_its_pods(world: World, key: str) -> None:
    taint_nodes_that_join(world, key)
    world.apply([node_class(world), node_pool(POOL)])
    world.apply(deployment("web", 3, SMALL))
    world.run_for(timedelta(minutes=3))
    world.scale("default", "web", 5)
    world.run_for(timedelta(minutes=3))
    (node,) = world.nodes()
    assert key in taints(node)
    assert initialized(world) == [("Unknown", "KnownEphemeralTaintsExist")]
    assert world.pods(phase="Running") == []
    world.store.patch(
        kinds.NODES,
        node["metadata"]["name"],
        {"spec": {"taints": [t for t in node["spec"]["taints"] if t["key"] != key]}},
    )
    world.run_until(lambda: len(world.pods(phase="Running")) == 5, limit=LIMIT)
    world.run_for(timedelta(minutes=1))
    assert initialized(world) == [("True", "Initialized")]
    assert len(world.nodes()) == 1
