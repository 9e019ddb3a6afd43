"""Drift in waves: one node first, more when it is healthy, and none after a new node has failed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.world import Options, World, sample_objects
from shared.api.labels import CAPACITY_TYPE, DRIFT_ROLLOUT, DRIFT_WAVES, INSTANCE_TYPE
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubelets.machine import Machine

MINUTE = timedelta(minutes=1)
LARGE = {"cpu": "1200m", "memory": "3Gi"}
"""One pod of it fits on an m5.large."""


class Boots:
    """Whether new machines join."""

    def __init__(self) -> None:
        self.never_join = False

    def __call__(self, _machine: Machine) -> MachineBehavior:
        return MachineBehavior(never_joins=self.never_join)


@pytest.fixture
def boots() -> Boots:
    return Boots()


@pytest.fixture
def world(boots: Boots) -> Iterator[World]:
    with World(cluster="demo", options=Options(behavior=boots)) as world:
        yield world


def node_pool(**labels: str) -> dict[str, Any]:
    requirements = {INSTANCE_TYPE: ["m5.large"], CAPACITY_TYPE: ["on-demand"]}
    disruption = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
    pool = sample_objects.node_pool(requirements, disruption=disruption)
    pool["metadata"]["annotations"] = {DRIFT_WAVES: "1, 50% healthy for 5m"}
    pool["spec"]["template"].setdefault("metadata", {})["labels"] = labels
    return pool


def start(world: World) -> None:
    """Four nodes, each with a pod."""
    world.apply([sample_objects.node_class(world), node_pool(team="old"), sample_objects.deployment("web", 4, LARGE)])
    world.run_until(lambda: len(running(world)) == 4, limit=10 * MINUTE)
    world.run_for(2 * MINUTE)


def teams(world: World) -> list[str]:
    return sorted(n["metadata"]["labels"].get("team", "") for n in world.nodes() if not _is_leaving(n))


def _is_leaving(obj: dict[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def stop(world: World) -> str:
    """The message of condition DriftStopped; empty without it."""
    pool = world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), "default")
    return next((c["message"] for c in pool["status"]["conditions"] if c["type"] == "DriftStopped"), "")


@pytest.mark.flow
def test_one_node_is_replaced_then_half_of_them_then_the_others(world: World) -> None:
    start(world)
    world.apply(node_pool(team="new"))
    sizes: list[int] = []
    when: dict[int, Any] = {}

    def replaced() -> bool:
        new = sum(c["metadata"]["labels"].get("team") == "new" for c in world.claims())
        sizes.append(new)
        when.setdefault(new, world.clock.now())
        return teams(world) == ["new"] * 4

    world.run_until(replaced, limit=60 * MINUTE)
    assert {1, 3, 4} <= set(sizes)
    assert when[3] - when[1] > 5 * MINUTE
    assert when[4] - when[3] > 5 * MINUTE
    assert len(running(world)) == 4
    assert world.failures() == []


@pytest.mark.flow
def test_a_new_node_that_never_joins_stops_drift_until_the_owner_lets_it_begin_again(
    world: World, boots: Boots
) -> None:
    start(world)
    boots.never_join = True
    world.apply(node_pool(team="broken"))
    before = len(world.aws.instances.all)
    world.run_for(90 * MINUTE)
    assert teams(world) == ["old"] * 4
    assert len(world.aws.instances.all) == before + 1
    assert len(running(world)) == 4
    assert "isn't initialized after 10m" in stop(world)
    assert f"kubectl annotate nodepool default {DRIFT_ROLLOUT}-" in stop(world)
    assert events(world, "DriftStopped", kind="NodePool")

    boots.never_join = False
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, "default", {"metadata": {"annotations": {DRIFT_ROLLOUT: None}}})
    world.run_until(lambda: teams(world) == ["broken"] * 4, limit=60 * MINUTE)
    assert stop(world) == ""


def test_a_change_of_the_template_begins_again_and_a_value_that_cannot_be_used_is_named(
    world: World, boots: Boots
) -> None:
    start(world)
    boots.never_join = True
    world.apply(node_pool(team="broken"))
    world.run_until(lambda: bool(stop(world)), limit=30 * MINUTE)
    boots.never_join = False
    mended = node_pool(team="mended")
    mended["metadata"]["annotations"] = {DRIFT_WAVES: "one by one"}
    world.apply(mended)
    world.run_for(10 * MINUTE)
    assert teams(world) == ["old"] * 4
    assert '"one by one" is no list of waves' in stop(world)
    world.apply(node_pool(team="mended"))
    world.run_until(lambda: teams(world) == ["mended"] * 4, limit=60 * MINUTE)
