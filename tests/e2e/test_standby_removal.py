"""Standby nodes go: when fewer are asked for, when they have drifted, and when they expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.world import World
from local.world.options import Options
from tests.e2e.hostile_bounds import shutdown_delay
from tests.e2e.test_standby_nodes import (
    MINUTE,
    POOL,
    STOPPED,
    TIMING,
    TYPE,
    annotate,
    assert_no_failures,
    instances,
    pool,
    start,
    states,
)
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster whose deployment may stop and start instances."""
    with World(cluster="demo", options=Options(context={"standby": "on"}, timing=TIMING)) as running_world:
        yield running_world


def test_what_is_asked_for_less_is_terminated_and_a_number_that_cant_be_read_deletes_nothing(world: World) -> None:
    start(world)
    annotate(world, "three")
    world.run_for(3 * MINUTE)
    assert states(world) == {STOPPED: 3}
    assert "must be a number" in events(world, "StandbyNotPossible")[0]["message"]
    annotate(world, f"1 {TYPE}")
    world.run_until(lambda: instances(world) == {"stopped": 1}, limit=5 * MINUTE)
    annotate(world, None)
    # Its DaemonSets' pods, whose kubelet doesn't run, aren't waited for.
    world.run_until(
        lambda: not instances(world) and not world.claims() and not world.nodes(), limit=1.5 * MINUTE + shutdown_delay()
    )
    assert_no_failures(world)


def test_a_deleted_nodepool_takes_its_standby_nodes_with_it(world: World) -> None:
    start(world, count=2)
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodePool"), POOL)
    world.run_until(lambda: not instances(world) and not world.claims() and not world.nodes(), limit=5 * MINUTE)
    assert_no_failures(world)


@pytest.mark.flow
def test_drifted_ones_are_replaced_one_after_the_other(world: World) -> None:
    start(world)
    old = {c["metadata"]["name"] for c in world.claims()}
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, POOL, {"spec": {"template": {"metadata": {"labels": {"team": "new"}}}}})
    fewest: list[int] = []

    def replaced() -> bool:
        fewest.append(states(world)[STOPPED])
        return states(world) == {STOPPED: 3} and not old & {c["metadata"]["name"] for c in world.claims()}

    world.run_until(replaced, limit=30 * MINUTE)
    assert min(fewest) == 2
    assert len(world.aws.instances.all) == 6
    assert {c["metadata"]["labels"].get("team") for c in world.claims()} == {"new"}
    assert_no_failures(world)


@pytest.mark.long
def test_expired_ones_are_replaced(world: World) -> None:
    start(world, pool(f"2 {TYPE}", template={"expireAfter": "1h"}), count=2)
    old = {c["metadata"]["name"] for c in world.claims()}
    world.run_for(50 * MINUTE)
    assert old == {c["metadata"]["name"] for c in world.claims()}
    world.run_for(30 * MINUTE)
    assert states(world) == {STOPPED: 2}
    assert not old & {c["metadata"]["name"] for c in world.claims()}
    assert len(world.aws.instances.all) == 4
