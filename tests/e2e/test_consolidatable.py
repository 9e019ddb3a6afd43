"""NodeClaims say when consolidateAfter has passed since their node's last pod event."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import sample_objects

if TYPE_CHECKING:
    from local.kubernetes.objects import Change, Obj
    from local.world import World

LIMIT = timedelta(minutes=5)
NO_BUDGET = {"budgets": [{"nodes": "0"}]}


def is_consolidatable(claim: Obj) -> bool:
    conditions = {c["type"]: c["status"] for c in claim["status"].get("conditions") or []}
    assert conditions.get("Consolidatable") in {None, "True"}
    return "Consolidatable" in conditions


def start(world: World, consolidate_after: str) -> None:
    """One node with one pod, which no budget lets go."""
    world.apply(sample_objects.node_class(world))
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": consolidate_after, **NO_BUDGET}
    requirements = {"node.kubernetes.io/instance-type": ["m5.2xlarge"]}
    world.apply(sample_objects.node_pool(requirements, disruption=disruption))
    world.apply(sample_objects.deployment("web", 1, {"cpu": "500m", "memory": "256Mi"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=LIMIT)


@pytest.mark.flow
def test_the_condition_follows_consolidate_after(world: World) -> None:
    start(world, "3m")
    world.run_for(timedelta(minutes=2))
    assert not is_consolidatable(world.claims()[0])
    world.run_until(lambda: is_consolidatable(world.claims()[0]), limit=timedelta(minutes=2, seconds=30))
    world.scale("default", "web", 2)
    world.run_until(lambda: not is_consolidatable(world.claims()[0]), limit=timedelta(minutes=1, seconds=30))
    world.run_until(lambda: is_consolidatable(world.claims()[0]), limit=LIMIT)
    world.scale("default", "web", 0)
    world.run_until(lambda: not is_consolidatable(world.claims()[0]), limit=timedelta(minutes=1, seconds=30))
    world.run_until(lambda: is_consolidatable(world.claims()[0]), limit=LIMIT)


def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    start(world, "30s")
    world.run_until(lambda: is_consolidatable(world.claims()[0]), limit=LIMIT)
    world.run_for(timedelta(minutes=2))
    written: list[Change] = []
    world.store.subscribe(lambda change: written.append(change) if change.kind.kind == "NodeClaim" else None)
    world.run_for(timedelta(minutes=10))
    assert written == []


def test_without_consolidation_there_is_no_condition(world: World) -> None:
    start(world, "0s")
    world.run_until(lambda: is_consolidatable(world.claims()[0]), limit=LIMIT)
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, "default", {"spec": {"disruption": {"consolidateAfter": "Never"}}})
    world.run_until(lambda: not is_consolidatable(world.claims()[0]), limit=timedelta(minutes=2))
