"""A static NodePool has ``replicas`` nodes, whether or not pods need them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import sample_objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.world import World

POOL = "fixed"


def pool(replicas: int, *, limits: dict[str, str] | None = None) -> dict[str, Any]:
    requirements = {"node.kubernetes.io/instance-type": ["m5.large"], "karpenter.sh/capacity-type": ["on-demand"]}
    disruption = {"consolidateAfter": "30s", "budgets": [{"nodes": "1"}]}
    return sample_objects.node_pool(
        requirements, name=POOL, replicas=replicas, limits=limits or {}, disruption=disruption
    )


def standing(world: World) -> list[str]:
    """The pool's initialized nodes that aren't being deleted."""
    return sorted(
        n["metadata"]["name"]
        for n in world.nodes(POOL)
        if n["metadata"]["labels"].get("karpenter.sh/initialized") == "true"
        and not n["metadata"].get("deletionTimestamp")
    )


def start(world: World, load: Callable[[str], list[dict[str, Any]]], replicas: int) -> None:
    world.apply([d for d in load("v1.yaml") if d["kind"] == "EC2NodeClass"])
    world.apply(pool(replicas))
    world.run_until(lambda: len(standing(world)) == replicas)


@pytest.mark.flow
def test_it_scales_up_to_replicas_keeps_empty_nodes_and_scales_down(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    start(world, load, 3)
    before = standing(world)
    world.run_for(timedelta(minutes=10))
    assert standing(world) == before
    assert len(world.instances()) == 3
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, POOL, {"spec": {"replicas": 1}})
    world.run_until_idle()
    assert len(standing(world)) == len(world.instances()) == 1
    # as kubectl scale does
    world.store.patch(kind, POOL, {"spec": {"replicas": 2}}, subresource="scale")
    world.run_until(lambda: len(standing(world)) == 2)
    assert world.failures() == []
    assert world.dead_letters() == []


def test_drifted_nodes_are_replaced_without_going_below_replicas(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    start(world, load, 2)
    old = set(standing(world))
    least: list[int] = []
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, POOL, {"spec": {"template": {"metadata": {"labels": {"team": "new"}}}}})

    def replaced() -> bool:
        least.append(len(standing(world)))
        return not old & {n["metadata"]["name"] for n in world.nodes(POOL)}

    world.run_until(replaced)
    world.run_until_idle()
    assert min(least) >= 2
    assert max(least) <= 3
    assert {n["metadata"]["labels"].get("team") for n in world.nodes(POOL)} == {"new"}
    assert len(standing(world)) == 2


def test_limits_keep_it_below_replicas_and_an_event_says_so(
    world: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world.apply([d for d in load("v1.yaml") if d["kind"] == "EC2NodeClass"])
    world.apply(pool(3, limits={"nodes": "2"}))
    world.run_until(lambda: len(standing(world)) == 2)
    world.run_for(timedelta(minutes=5))
    assert len(world.instances()) == 2
    kinds = world.store.kind("v1", "Event")
    events = [e for e in world.store.list(kinds) if e["reason"] == "ReplicasMissing"]
    assert "nodes 0 left" in events[0]["message"]
    assert events[0]["involvedObject"]["name"] == POOL
