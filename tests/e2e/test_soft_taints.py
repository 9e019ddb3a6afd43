"""New pods fill the nodes that stay: those that could go have a soft taint."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import sample_objects

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from local.world import World

MINUTE = timedelta(minutes=1)
TAINT = {"key": "tenon.sh/deletion-candidate", "effect": "PreferNoSchedule"}
ON_DEMAND = {
    "karpenter.sh/capacity-type": ["on-demand"],
    "node.kubernetes.io/instance-type": ["m5.xlarge"],
    "topology.kubernetes.io/zone": ["us-east-1a"],
}
"""Nodes for seven pods of half a cpu."""
NO_BUDGET = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m", "budgets": [{"nodes": "0"}]}


def start(world: World, *, consolidate_after: str = "1m", soft_taints: str = "") -> None:
    """Three full nodes, from two of which most pods go: the first keeps six and the others two each."""
    pool = sample_objects.node_pool(ON_DEMAND, disruption={**NO_BUDGET, "consolidateAfter": consolidate_after})
    if soft_taints:
        pool["metadata"].setdefault("annotations", {})["tenon.sh/soft-taints"] = soft_taints
    world.apply([sample_objects.node_class(world), pool])
    for i, replicas in enumerate((6, 7, 7)):
        world.apply(sample_objects.deployment(f"web-{i}", replicas, {"cpu": "500m", "memory": "256Mi"}))
        world.run_until(lambda n=i: len(world.nodes()) == n + 1 and not world.pending())  # type: ignore[misc]
    world.run_for(MINUTE)
    for i in (1, 2):
        world.scale("default", f"web-{i}", 2)
    world.run_until(lambda: len(world.pods()) == 10)


def avoided(world: World) -> set[str]:
    return {n["metadata"]["name"] for n in world.nodes() if TAINT in (n["spec"].get("taints") or [])}


def _changes_taints(change: Change) -> bool:
    """Whether this write changed a node's taints."""
    if change.kind.kind != "Node" or change.previous is None:
        return False
    return bool(change.previous["spec"].get("taints") != change.object["spec"].get("taints"))


def pods_by_node(world: World) -> dict[str, int]:
    return {n["metadata"]["name"]: len(world.pods(node=n["metadata"]["name"])) for n in world.nodes()}


@pytest.mark.flow
def test_new_pods_avoid_the_nodes_that_could_go(world: World) -> None:
    start(world)
    world.run_until(lambda: len(avoided(world)) == 1, limit=3 * MINUTE)
    (least,) = avoided(world)
    before = pods_by_node(world)
    world.apply(sample_objects.deployment("late", 4, {"cpu": "500m", "memory": "256Mi"}))
    world.run_until(lambda: not world.pending(), limit=MINUTE)
    assert pods_by_node(world)[least] == before[least]
    assert len(world.nodes()) == 3


def test_a_preference_leaves_no_pod_pending_and_ends_when_the_room_is_needed(world: World) -> None:
    start(world)
    world.run_until(lambda: len(avoided(world)) == 1, limit=3 * MINUTE)
    world.scale("default", "web-0", 14)
    world.run_until(lambda: len(world.pods(phase="Running")) == 18, limit=MINUTE)
    world.run_until(lambda: not avoided(world), limit=2 * MINUTE)
    assert len(world.nodes()) == 3


def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    start(world)
    world.run_until(lambda: len(avoided(world)) == 1, limit=3 * MINUTE)
    world.run_for(2 * MINUTE)
    changed: list[Change] = []
    world.store.subscribe(lambda change: changed.append(change) if _changes_taints(change) else None)
    world.run_for(timedelta(minutes=10))
    assert changed == []
    world.scale("default", "web-0", 14)
    world.run_until(lambda: bool(changed), limit=3 * MINUTE)


def test_a_pool_can_do_without(world: World) -> None:
    start(world, soft_taints="false")
    world.run_for(4 * MINUTE)
    assert avoided(world) == set()


def test_a_pool_whose_nodes_never_go_loses_them(world: World) -> None:
    start(world)
    world.run_until(lambda: len(avoided(world)) == 1, limit=3 * MINUTE)
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, "default", {"spec": {"disruption": {"consolidateAfter": "Never"}}})
    world.run_until(lambda: not avoided(world), limit=2 * MINUTE)
