"""One of AWS's services fails, and everything that doesn't need it continues (docs/resilience.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.e2e.interruptions.environment import (
    assert_drained_within_notice,
    assert_no_failures,
    deployment,
    fill,
    small_nodes,
)

if TYPE_CHECKING:
    from local.world import World


@pytest.mark.parametrize("operation", ["", "BatchWriteItem"])
def test_without_dynamodb_interrupted_nodes_are_drained_in_time_and_pods_get_nodes(
    world: World, operation: str
) -> None:
    small_nodes(world)
    world.apply([deployment("web", 6)])
    fill(world, 6)
    world.faults.fail_service("dynamodb", operation)
    interrupted = {i.id for i in world.instances()}
    assert len(interrupted) == 3
    warned = world.clock.now()
    world.interrupt_spot(sorted(interrupted))
    world.scale("default", "web", 8)
    assert_drained_within_notice(world, sorted(interrupted), pods=6, warned=warned)
    world.run_until(lambda: len(world.pods(phase="Running")) == 8, limit=timedelta(minutes=3))
    world.run_for(timedelta(minutes=10))
    assert len(world.pods(phase="Running")) == 8
    assert world.dead_letters() == []
    assert_no_failures(world)


CONTINUES = {
    "ssm": "images are remembered by the class's status",
    "pricing": "the catalog has prices",
    "iam": "the class has its instance profile",
    "cloudwatch": "metrics are log lines",
    "eventbridge": "sweeps find what no hint announces",
    "s3": "a warm function has the catalog",
}
"""Services without which pending pods still get nodes and interrupted nodes are drained, and why."""


@pytest.mark.parametrize("service", CONTINUES)
def test_without_the_service_pods_get_nodes_and_interrupted_nodes_are_drained(world: World, service: str) -> None:
    small_nodes(world)
    world.apply([deployment("web", 4)])
    fill(world, 4)
    world.run_for(timedelta(minutes=2))
    world.faults.fail_service(service)
    interrupted = world.instances()[0].id
    warned = world.clock.now()
    world.interrupt_spot([interrupted])
    world.scale("default", "web", 6)
    world.run_until(
        lambda: len(world.pods(phase="Running")) == 6 and interrupted not in {i.id for i in world.instances()},
        limit=timedelta(minutes=5),
    )
    ended = [h.at for h in world.timeline.of("pod terminating") if h.at >= warned]
    assert max(ended) < warned + timedelta(seconds=110)
    world.run_for(timedelta(minutes=20))
    assert len(world.pods(phase="Running")) == 6
    # Only the catalog function fetches and stores what is away; its next run repeats it.
    assert [m for m in world.dead_letters() if "tenon-demo-catalog" not in m.body] == []
