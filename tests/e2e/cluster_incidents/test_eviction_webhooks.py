"""An admission webhook denies evictions, or doesn't answer: the drain says so, and ends with its grace period."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.faults import ALWAYS, Fault
from local.kubernetes import kinds
from local.world import sample_objects
from tests.e2e.cluster_incidents.small_pool import REQUIREMENTS, web
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from local.world import World

MINUTE = timedelta(minutes=1)
DENIED = 'admission webhook "freeze.example.com" denied the request: no evictions today'
TIMED_OUT = 'Internal error occurred: failed calling webhook "freeze.example.com": context deadline exceeded'
FAULTS = {
    "denied": Fault(code="Forbidden", status=403, message=DENIED),
    "timed out": Fault(code="InternalError", status=500, message=TIMED_OUT, delay=10),
    "never answered": Fault(code="Timeout", status=504, message="request did not complete within 60 s", delay=10),
}


@pytest.mark.parametrize("how", FAULTS)
def test_it_is_named_other_drains_continue_and_the_grace_period_ends_it(world: World, how: str) -> None:
    disruption = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
    template = {"expireAfter": "Never", "terminationGracePeriod": "15m"}
    pool = sample_objects.node_pool(REQUIREMENTS, disruption=disruption, template=template)
    world.apply([sample_objects.node_class(world), pool, web(3)])
    world.run_until(lambda: len(running(world, "web")) == 3)
    world.run_for(MINUTE)
    held, free = running(world, "web")[:2]
    path = f"/pods/{held['metadata']['name']}/eviction"
    world.faults.inject_kubernetes("POST", path, FAULTS[how], times=ALWAYS)
    for pod in (held, free):
        world.store.delete(kinds.NODES, pod["spec"]["nodeName"])
    world.run_until(lambda: free["metadata"]["uid"] not in uids(world), limit=2 * MINUTE)
    world.run_for(5 * MINUTE)
    assert held["metadata"]["uid"] in uids(world)
    (event,) = events(world, "FailedDraining", name=held["spec"]["nodeName"])
    assert FAULTS[how].message in event["message"]
    assert len(world.faults.occurred) <= 60
    world.run_until(lambda: held["metadata"]["uid"] not in uids(world), limit=15 * MINUTE)
    world.run_until(lambda: len(running(world, "web")) == len(world.instances()) == 3, limit=5 * MINUTE)
    assert world.failures() == []
    assert world.dead_letters() == []


def uids(world: World) -> set[str]:
    return {p["metadata"]["uid"] for p in running(world, "web")}
