"""Many nodes are not Ready at once, or one again and again: the cause isn't the nodes, and none is replaced for it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.objects import timestamp
from local.world import sample_objects
from tests.e2e.cluster_incidents.small_pool import REQUIREMENTS, web
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from local.world import World

MINUTE = timedelta(minutes=1)
STAYS = [{"operator": "Exists", "effect": "NoExecute"}]
"""As kube-controller-manager evicts nothing while most nodes of all zones are not Ready."""


def start(world: World, count: int) -> list[str]:
    """Nodes with one pod each, in a NodePool with every method on; returns their names."""
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}
    pool = sample_objects.node_pool(
        REQUIREMENTS,
        annotations={"tenon.sh/repair": "true"},
        disruption=disruption,
        template={"expireAfter": "50m"},
    )
    world.apply([sample_objects.node_class(world), pool, web(count, tolerations=STAYS)])
    world.run_until(lambda: len(running(world, "web")) == count)
    world.run_for(3 * MINUTE)
    return sorted(n["metadata"]["name"] for n in world.nodes())


def set_ready(world: World, node: str, *, status: str) -> None:
    """Write the condition as the node's kubelet does."""
    conditions = [
        c if c["type"] != "Ready" else {**c, "status": status, "lastTransitionTime": timestamp(world.clock.now())}
        for c in world.store.get(kinds.NODES, node)["status"]["conditions"]
    ]
    world.store.patch(kinds.NODES, node, {"status": {"conditions": conditions}}, subresource="status")


def test_nothing_is_repaired_consolidated_or_expired_while_60_percent_are_not_ready(world: World) -> None:
    nodes = start(world, 10)
    claims = {c["metadata"]["name"] for c in world.claims()}
    foreign = len(world.store.list(kinds.NODES)) - len(nodes)
    for node in nodes[: 6 + foreign]:
        world.kubelets[0].stop_heartbeat(node, world.clock.now())
    world.run_for(90 * MINUTE)
    assert {c["metadata"]["name"] for c in world.claims()} == claims
    assert len(world.aws.instances.all) == 10
    assert not [n for n in world.nodes() if n["metadata"].get("deletionTimestamp")]
    assert world.failures() == []
    assert world.dead_letters() == []


def test_a_kubelet_that_flaps_each_minute_costs_no_node(world: World) -> None:
    nodes = start(world, 3)
    invocations = len(world.aws.functions.invocations)
    for minute in range(40):
        set_ready(world, nodes[0], status="False" if minute % 2 == 0 else "True")
        world.run_for(MINUTE)
    assert len(world.aws.instances.all) == 3
    assert not any(c["metadata"].get("deletionTimestamp") for c in world.claims())
    # Four functions sweep each minute; a changed node is one reconcile of the lifecycle function more.
    assert len(world.aws.functions.invocations) - invocations <= 6 * 40
