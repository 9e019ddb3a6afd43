"""One of AWS's services fails, and everything that doesn't need it continues (docs/resilience.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.faults import Fault
from tests.e2e.interruptions.environment import assert_no_failures, deployment, fill, small_nodes

if TYPE_CHECKING:
    from local.world import World

ALWAYS = 10**9


def fail(world: World, service: str, operation: str = "") -> None:
    """Let all calls of the service, or of one operation, fail from now on."""
    world.faults.inject(
        lambda point: point.service == service and operation in ("", point.operation),
        Fault(code="InternalServerError", status=500),
        times=ALWAYS,
    )


@pytest.mark.parametrize("operation", ["", "BatchWriteItem"])
def test_without_dynamodb_interrupted_nodes_are_drained_in_time_and_pods_get_nodes(
    world: World, operation: str
) -> None:
    small_nodes(world)
    world.apply([deployment("web", 6)])
    fill(world, 6)
    fail(world, "dynamodb", operation)
    interrupted = {i.id for i in world.instances()}
    assert len(interrupted) == 3
    warned = world.clock.now()
    world.interrupt_spot(sorted(interrupted))
    world.scale("default", "web", 8)
    world.run_until(lambda: not interrupted & {i.id for i in world.instances()}, limit=timedelta(seconds=130))
    evictions = [h for h in world.timeline.of("pod terminating") if h.at >= warned]
    assert len(evictions) == 6
    assert max(h.at for h in evictions) < warned + timedelta(seconds=110)
    world.run_until(lambda: len(world.pods(phase="Running")) == 8, limit=timedelta(minutes=3))
    world.run_for(timedelta(minutes=10))
    assert len(world.pods(phase="Running")) == 8
    assert world.dead_letters() == []
    assert_no_failures(world)
