"""An Availability Zone is away, or a webhook of others answers too late: the rest continues, nothing is given up."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.faults import ALWAYS, Fault
from local.world import sample_objects
from shared.api import labels
from tests.e2e.aws_failures.conditions import (
    MINUTE,
    assert_nothing_lost_or_doubled,
    launched,
    small_cluster,
)

if TYPE_CHECKING:
    from local.world import World

UNAVAILABLE = ("Unavailable", "The server is overloaded and can't handle the request.")
TIMED_OUT = 'failed calling webhook "policy.example.com": context deadline exceeded'


def test_a_zone_without_answers_whose_nodes_are_not_ready_is_left_and_pods_run_in_others(spot_default: World) -> None:
    world = spot_default
    spread = sample_objects.zone_spread("web", when="ScheduleAnyway")
    world.apply(sample_objects.deployment("web", 6, {"cpu": "3"}, topologySpreadConstraints=[spread]))
    world.run_until(lambda: len(world.pods(phase="Running")) == 6)
    world.run_for(3 * MINUTE)
    zones = {n["metadata"]["name"]: n["metadata"]["labels"][labels.ZONE] for n in world.nodes()}
    away = min(zones.values())
    lost = {name for name, zone in zones.items() if zone == away}
    assert 0 < len(lost) < len(zones)
    before = launched(world)
    with world.aws.lock:
        world.aws.consistency.disrupted_zones = frozenset({away})
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.fail(capacity_type, "*", away, UNAVAILABLE)
    for name in lost:
        world.kubelets[0].stop_heartbeat(name, world.clock.now())
    world.run_for(timedelta(minutes=30))
    healthy = [n for n, zone in zones.items() if zone != away]
    assert set(healthy) <= {n["metadata"]["name"] for n in world.nodes()}
    ready = [p for p in world.pods(phase="Running") if p["spec"]["nodeName"] not in lost]
    assert len(ready) == 6
    added = [n for n in world.nodes() if n["metadata"]["name"] not in zones]
    assert not [n for n in added if n["metadata"]["labels"][labels.ZONE] == away]
    assert launched(world) <= before + len(lost) + 1

    with world.aws.lock:
        world.aws.consistency.disrupted_zones = frozenset()
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.fail(capacity_type, "*", away, None)
    world.run_for(timedelta(minutes=30))
    assert len([p for p in world.pods(phase="Running") if "deletionTimestamp" not in p["metadata"]]) == 6
    assert world.dead_letters() == []


def test_a_webhook_of_others_that_times_out_costs_time_and_nothing_else(world: World) -> None:
    small_cluster(world, 4)
    before = launched(world)
    late = Fault(code="InternalError", status=500, message=TIMED_OUT, delay=10)
    world.faults.inject_kubernetes("POST", "/nodeclaims", late, times=ALWAYS)
    world.scale("default", "web", 6)
    world.run_for(10 * MINUTE)
    assert launched(world) <= before + 1
    assert len(world.pods(phase="Running")) >= 4
    world.faults.clear()
    world.run_for(timedelta(minutes=15))
    assert_nothing_lost_or_doubled(world, pods=6)
    assert launched(world) <= before + 3
