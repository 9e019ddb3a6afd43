"""In a hostile world, each hostility by itself and all at once: pods run, nobody launches twice, nothing is left."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import Options, World, sample_objects
from local.world.foreign_objects import foreign_objects
from local.world.hostility import Hostility
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from typing import Any

LIMIT = timedelta(minutes=30)
PODS = 6
CALM = Hostility(
    lag=timedelta(),
    page_size=1000,
    incomplete=0,
    stop_duration=timedelta(seconds=8),
    whole_grace=False,
    foreign_objects=False,
    concurrency=1,
    rebalance_after=None,
)
APART = sample_objects.one_per_node("web")


def run_and_empty(world: World) -> None:
    """Six nodes of one launch, one pod each; then none. Each NodeClaim has had one instance, and nothing is left."""
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool({}, disruption=disruption)])
    requests = {"cpu": "700m", "memory": "256Mi"}
    world.apply(
        sample_objects.deployment("web", PODS, requests, affinity=APART, terminationGracePeriodSeconds=40),
    )
    world.run_until(lambda: len(world.pods(phase="Running")) == PODS, limit=LIMIT)
    world.run_for(timedelta(minutes=10))
    assert len(world.aws.instances.all) == len(world.claims()) == PODS
    world.scale("default", "web", 0)
    world.run_until(lambda: not (world.instances() or world.nodes() or world.claims()), limit=LIMIT)
    assert len(world.aws.instances.all) == PODS
    assert world.failures() == []
    assert world.dead_letters() == []


@pytest.mark.parametrize(
    "hostility",
    [
        pytest.param({"lag": timedelta(seconds=5)}, id="answers lag"),
        pytest.param({"page_size": 2}, id="answers come in pages of which one is empty"),
        pytest.param({"incomplete": 0.5}, id="answers leave instances out"),
        pytest.param({"incomplete": 0.5, "left_out": 1.0}, id="answers are empty"),
        pytest.param({"stop_duration": timedelta(seconds=60)}, id="instances shut down slowly"),
        pytest.param({"whole_grace": True}, id="pods use their whole grace period"),
        pytest.param({"foreign_objects": True}, id="objects of other node-class groups"),
        pytest.param({"concurrency": 4}, id="functions run at once"),
    ],
)
@pytest.mark.long
def test_each_hostility_alone_changes_nothing_that_users_see(hostility: dict[str, Any]) -> None:
    with World(cluster="demo", options=Options(hostility=with_fields(CALM, **hostility))) as world:
        run_and_empty(world)


@pytest.mark.flow
def test_all_hostilities_at_once_change_nothing_that_users_see() -> None:
    with World(cluster="demo", options=Options(hostility=Hostility())) as world:
        before = list(foreign_objects(world.store))
        assert {obj["kind"] for obj in before} == {"NodeClass", "AKSNodeClass", "NodePool", "NodeClaim", "Node"}
        run_and_empty(world)


def test_instances_that_ec2_does_not_know_for_a_minute_are_launched_once_all_the_same() -> None:
    with World(cluster="demo", options=Options(hostility=CALM)) as world:
        world.aws.consistency.tag_lag = timedelta(minutes=1)
        run_and_empty(world)
