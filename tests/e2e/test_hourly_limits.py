"""What one hour may launch and remove: runaways stop at the limit, say so, and continue when it is raised or over."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws.eventual_consistency import launch_time
from local.faults import Fault
from local.world import Options, World, sample_objects
from shared.api import labels as names
from tests.e2e.cli.conftest import Shell
from tests.e2e.test_cluster_limits import NODE_POOL, apart
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo", options=Options()) as opened:
        opened.apply(sample_objects.node_class(opened))
        yield opened


def pool(limits: str, **spec: Any) -> dict[str, Any]:
    requirements = {"node.kubernetes.io/instance-type": ["m5.large"], "karpenter.sh/capacity-type": ["on-demand"]}
    annotations = {names.HOURLY_LIMITS: limits} if limits else {}
    return sample_objects.node_pool(requirements, name="default", annotations=annotations, **spec)


def launches(world: World) -> int:
    """How many instances were ever launched."""
    return len(world.aws.instances.all)


def limit_condition(world: World) -> tuple[str, str]:
    stored = world.store.get(world.store.kind(*NODE_POOL), "default")
    conditions = [c for c in stored["status"]["conditions"] if c["type"] == "WithinHourlyLimits"]
    return (conditions[0]["status"], conditions[0]["message"]) if conditions else ("", "")


def raise_to(world: World, limits: str) -> None:
    patch = {"metadata": {"annotations": {names.HOURLY_LIMITS: limits}}}
    world.store.patch(world.store.kind(*NODE_POOL), "default", patch)


@pytest.mark.flow
def test_launches_stop_at_the_limit_which_is_shown_and_continue_when_it_is_raised(world: World, tmp_path: Path) -> None:
    world.apply([pool("launches=3"), apart("web", 5)])
    world.run_for(15 * MINUTE)
    assert launches(world) == len(running(world)) == 3
    status, message = limit_condition(world)
    assert status == "False"
    assert message.startswith("the hourly limit of NodePool default is reached: 3 nodes launched in the last hour of 3")
    assert events(world, "HourlyLimitReached", kind="NodePool", name="default")
    waiting = {p["metadata"]["name"] for p in world.pending()}
    assert len(waiting) == 2
    assert {
        e["involvedObject"]["name"] for e in events(world, "FailedScheduling", kind="Pod") if message in e["message"]
    } == waiting
    path = tmp_path / "kubeconfig"
    path.write_text(world.kubectl_config())
    shown = Shell(world, path).tenon("status")
    assert shown.code == 1
    assert "WithinHourlyLimits" in shown.out
    raise_to(world, "launches=10")
    world.run_until(lambda: len(running(world)) == 5, limit=5 * MINUTE)
    world.run_for(15 * MINUTE)
    assert limit_condition(world)[0] == "True"


def test_an_hour_later_launches_continue(world: World) -> None:
    world.apply([pool("launches=3"), apart("web", 5)])
    world.run_for(58 * MINUTE)
    assert launches(world) == 3
    world.run_for(15 * MINUTE)
    assert len(running(world)) == 5


@pytest.mark.parametrize("limit", ["launches=6", pytest.param("usd=1", marks=pytest.mark.long)])
def test_nodes_that_die_and_are_bought_again_stop_at_the_limit(world: World, limit: str) -> None:
    """Each machine joins, runs its pods for two minutes and is gone: the circuit breaker has nothing to say."""
    price = 0.096
    most = 6 if limit == "launches=6" else int(1 / price)
    world.apply([pool(limit), apart("web", 2)])
    at_end_of_hours = []
    for _ in range(3):
        for _ in range(30):
            world.run_for(2 * MINUTE)
            # EC2 terminates no instance that it doesn't show yet.
            if ids := [
                i.id for i in world.instances() if launch_time(i) <= world.clock.now() - world.aws.consistency.lag
            ]:
                boto3.client("ec2", region_name=world.region).terminate_instances(InstanceIds=ids)
        at_end_of_hours.append(launches(world))
    assert at_end_of_hours[0] <= most
    assert at_end_of_hours[2] <= 3 * most
    assert launches(world) > most
    assert limit_condition(world)[0] == "False"


def test_launches_without_capacity_use_up_nothing_whoever_tried_them(world: World) -> None:
    world.apply([pool("launches=4"), apart("web", 4)])
    no_capacity = Fault(code="InsufficientInstanceCapacity", status=500)
    world.faults.inject(lambda point: point.operation == "CreateFleet", no_capacity, times=10**6)
    for _ in range(10):
        world.run_for(5 * MINUTE)
        world.aws.functions.discard_environments()
    assert launches(world) == 0
    world.faults.clear()
    world.run_until(lambda: len(running(world)) == 4, limit=15 * MINUTE)


@pytest.mark.long
def test_drifted_nodes_are_replaced_up_to_the_limit_an_hour(world: World) -> None:
    created = pool("removals=2")
    created["spec"]["disruption"] = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "Never"}
    world.apply([created, apart("web", 5)])
    world.run_until(lambda: len(running(world)) == 5)
    before = {n["metadata"]["uid"] for n in world.nodes()}
    created["spec"]["template"].setdefault("metadata", {})["labels"] = {"new": "true"}
    world.apply([created])
    world.run_for(50 * MINUTE)
    assert len(before - {n["metadata"]["uid"] for n in world.nodes()}) == 2
    status, message = limit_condition(world)
    assert status == "False"
    assert "2 nodes with pods removed in the last hour of 2" in message
    world.run_for(HOUR)
    assert len(before - {n["metadata"]["uid"] for n in world.nodes()}) == 4
    assert len(running(world)) == 5
