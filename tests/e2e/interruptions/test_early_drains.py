"""Nodes at risk and nodes with maintenance ahead are replaced in advance, a few at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.world import World
from tests.e2e.interruptions.environment import (
    claim_annotations,
    deployment,
    fill,
    health,
    is_deleting,
    nodes_of,
    send,
    small_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def replacing_world() -> Iterator[World]:
    """A cluster whose NodePool of small spot nodes replaces nodes on rebalance recommendations."""
    with World(cluster="demo") as world:
        small_nodes(world, {"tenon.sh/on-rebalance": "replace"})
        yield world


def test_a_wave_of_recommendations_replaces_a_tenth_at_a_time_and_launches_replacements_first(
    replacing_world: World,
) -> None:
    world = replacing_world
    world.apply([deployment("web", 60)])
    fill(world, 60)
    at_risk = [i.id for i in world.instances()]
    assert len(at_risk) == 30
    deleting: list[int] = []
    began = world.clock.now()
    world.aws.instances.recommend_rebalance(at_risk[:12])

    def reached() -> bool:
        deleting.append(sum(1 for c in world.claims() if c["metadata"].get("deletionTimestamp")))
        return not {i.id for i in world.instances()} & set(at_risk[:12])

    world.run_until(reached, limit=timedelta(minutes=20))
    assert max(deleting) == 3
    launched = [h.at for h in world.timeline.of("claim launched") if h.at >= began]
    leaving = [h.at for h in world.timeline.of("claim terminating") if h.at >= began]
    assert min(launched) <= min(leaving)
    world.run_until(lambda: len(world.pods(phase="Running")) == 60, limit=timedelta(minutes=3))


@pytest.mark.parametrize("policy", ["", "ignore", "cordon", "replcae"])
def test_a_pool_ignores_recommendations_unless_it_says_otherwise(policy: str) -> None:
    with World(cluster="demo") as world:
        small_nodes(world, {"tenon.sh/on-rebalance": policy} if policy else {})
        world.apply([deployment("web", 4)])
        fill(world, 4)
        first = world.instances()[0].id
        (node,) = nodes_of(world, {first})
        world.aws.instances.recommend_rebalance([first])
        world.run_for(timedelta(minutes=5))
        assert not is_deleting(world, node)
        recorded = {e["reason"] for e in world.store.list(kinds.EVENTS) if e["involvedObject"]["kind"] == "NodeClaim"}
        assert "SpotRebalanceRecommendation" in recorded
        assert ("tenon.sh/rebalance-recommended" in claim_annotations(world, node)) == (policy == "cordon")
        unschedulable = world.store.get(kinds.NODES, node)["spec"].get("unschedulable", False)
        assert unschedulable == (policy == "cordon")
        assert len(world.pods(phase="Running")) == 4


@pytest.mark.long
def test_a_node_at_risk_stays_while_its_pods_fit_nowhere_else(replacing_world: World) -> None:
    world = replacing_world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    (instance,) = world.instances()
    world.aws.capacity.set("spot", "*", "*", 0)
    world.aws.instances.recommend_rebalance([instance.id])
    world.run_for(timedelta(minutes=5))
    assert [i.id for i in world.instances()] == [instance.id]
    assert len(world.pods(phase="Running")) == 2


@pytest.mark.flow
def test_scheduled_maintenance_waits_for_disruption_budgets_until_it_is_imminent() -> None:
    with World(cluster="demo") as world:
        small_nodes(world, budgets="0")
        world.apply([deployment("web", 4)])
        fill(world, 4)
        instance = world.instances()[0].id
        (node,) = nodes_of(world, {instance})
        start = world.clock.now() + timedelta(minutes=75)
        world.aws.statuses.schedule(instance, "instance-retirement", start)
        send(world, health(world, instance, start=start))
        world.run_for(timedelta(minutes=10))
        assert not is_deleting(world, node)
        assert "tenon.sh/maintenance-starts" in claim_annotations(world, node)
        world.run_until(lambda: instance not in {i.id for i in world.instances()}, limit=timedelta(minutes=20))
        assert world.clock.now() < start
        world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=timedelta(minutes=3))
