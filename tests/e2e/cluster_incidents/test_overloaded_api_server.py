"""The API server refuses every request for ten minutes: requests don't multiply, and all continues after it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.faults import ALWAYS, Fault, InjectionPoint
from tests.e2e.interruptions.environment import deployment, fill, small_nodes

if TYPE_CHECKING:
    from local.world import World

MINUTE = timedelta(minutes=1)


class Requests:
    """Counts Tenon's requests to the API server."""

    def __init__(self, world: World) -> None:
        self.count = 0
        world.faults.inject(self._counted, Fault(), times=ALWAYS)

    def _counted(self, point: InjectionPoint) -> bool:
        self.count += point.service == "kubernetes" and not point.sending and point.caller.startswith("tenon")
        return False


@pytest.mark.parametrize(
    ("fault", "most"),
    [
        (Fault(code="TooManyRequests", status=429, retry_after=1), 1.5),
        (Fault(code="TooManyRequests", status=429, retry_after=30), 0.5),
        (Fault(code="ServiceUnavailable", status=503), 1.5),
    ],
)
def test_requests_dont_multiply_and_pods_get_nodes_after_it(world: World, fault: Fault, most: float) -> None:
    small_nodes(world)
    world.apply([deployment("web", 8)])
    fill(world, 8)
    world.run_for(2 * MINUTE)
    requests = Requests(world)
    world.run_for(10 * MINUTE)
    before, requests.count = requests.count, 0
    world.scale("default", "web", 12)
    world.faults.inject(
        lambda point: point.service == "kubernetes" and point.caller.startswith("tenon"), fault, times=ALWAYS
    )
    world.run_for(10 * MINUTE)
    assert requests.count <= most * before
    world.faults.clear()
    world.run_until(lambda: len(world.pods(phase="Running")) == 12, limit=5 * MINUTE)
    assert len(world.instances()) == 6


def test_while_nodeclaims_cant_be_converted_nothing_is_given_up_and_pods_get_nodes_after_it(world: World) -> None:
    small_nodes(world)
    world.apply([deployment("web", 8)])
    fill(world, 8)
    instances = {i.id for i in world.instances()}
    message = "conversion webhook for karpenter.sh/v1, Kind=NodeClaim failed: service not found"
    world.faults.inject(
        lambda point: point.service == "kubernetes" and "/nodeclaims" in point.target and "tenon" in point.caller,
        Fault(code="InternalError", status=500, message=message),
        times=ALWAYS,
    )
    world.scale("default", "web", 10)
    world.run_for(15 * MINUTE)
    assert {i.id for i in world.instances()} == instances
    world.faults.clear()
    world.run_until(lambda: len(world.pods(phase="Running")) == 10, limit=5 * MINUTE)
    assert instances < {i.id for i in world.instances()}
