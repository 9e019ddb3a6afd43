"""A quota of the account is reached: other offerings are tried, few calls are made, and objects say which quota."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.faults import ALWAYS, Fault
from local.world import sample_objects
from shared.api import labels
from tests.e2e.aws_failures.conditions import (
    MINUTE,
    assert_nothing_lost_or_doubled,
    is_true,
    launched,
    message,
    node_pool,
)
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from local.world import World

REQUESTS = {"cpu": "1500m", "memory": "900Mi"}
SPOT_COUNT = ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
VCPUS = (
    "VcpuLimitExceeded",
    "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket",
)
ADDRESSES = (
    "InsufficientFreeAddressesInSubnet",
    "There are not enough free addresses in subnet to satisfy the requested number of instances.",
)

CALLS_A_MINUTE = 4
"""Of a quota that all types share: one for spot and one on demand, and again each minute. 2 were measured."""
CALLS_A_MINUTE_BY_TYPE = 20
"""Where other types may help, they are tried, up to three rounds a minute: 18 were measured."""
MINUTES = 4


def start(world: World, pods: int) -> None:
    pool = sample_objects.node_pool(
        {labels.CAPACITY_TYPE: ["spot", "on-demand"], "karpenter.k8s.aws/instance-category": ["c", "m", "r", "t"]}
    )
    pool["spec"]["disruption"] = {"consolidateAfter": "Never"}
    world.apply([sample_objects.node_class(world), pool, sample_objects.deployment("web", pods, REQUESTS)])


def capacity_types(world: World) -> set[str]:
    return {n["metadata"]["labels"][labels.CAPACITY_TYPE] for n in world.nodes()}


def test_without_quota_for_spot_on_demand_is_launched_and_spot_again_later(world: World) -> None:
    world.aws.capacity.fail("spot", "*", "*", SPOT_COUNT)
    start(world, 4)
    world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=3 * MINUTE)
    assert capacity_types(world) == {"on-demand"}
    assert len(world.aws.fleets.calls) <= 4
    world.aws.capacity.fail("spot", "*", "*", None)
    world.run_for(15 * MINUTE)
    world.scale("default", "web", 40)
    world.run_until(lambda: len(world.pods(phase="Running")) == 40, limit=5 * MINUTE)
    assert capacity_types(world) == {"spot", "on-demand"}


@pytest.mark.parametrize(
    ("quota", "calls_a_minute"),
    [
        pytest.param(VCPUS, CALLS_A_MINUTE, id=VCPUS[0]),
        pytest.param(ADDRESSES, CALLS_A_MINUTE_BY_TYPE, id=ADDRESSES[0], marks=pytest.mark.long),
    ],
)
def test_a_quota_that_every_offering_meets_is_named_on_the_pod_and_few_calls_are_made(
    world: World, quota: tuple[str, str], calls_a_minute: int
) -> None:
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.fail(capacity_type, "*", "*", quota)
    start(world, 4)
    world.run_for(MINUTES * MINUTE)
    assert launched(world) == 0
    assert len(world.aws.fleets.calls) <= MINUTES * calls_a_minute
    assert any(quota[1][:40] in e["message"] for e in events(world, kind="Pod") + events(world, kind="NodeClaim"))
    for capacity_type in ("spot", "on-demand"):
        world.aws.capacity.fail(capacity_type, "*", "*", None)
    world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=8 * MINUTE)
    world.run_for(MINUTE)
    assert_nothing_lost_or_doubled(world, pods=4)


@pytest.mark.parametrize(
    ("operation", "code", "text"),
    [
        ("CreateFleet", "VolumeLimitExceeded", "You have exceeded your maximum gp3 storage limit of 50 TiB"),
        ("CreateLaunchTemplate", "MaxTemplateLimitExceeded", "You have reached the limit of launch templates"),
        ("CreateFleet", "InvalidKMSKey.InvalidState", "The KMS key provided is in an incorrect state"),
    ],
)
def test_a_limit_that_no_offering_avoids_pauses_the_nodepool_and_is_named_there(
    world: World, operation: str, code: str, text: str
) -> None:
    world.faults.inject_aws("ec2", operation, Fault(code=code, message=text), times=ALWAYS)
    start(world, 4)
    world.run_for(12 * MINUTE)
    assert launched(world) == 0
    tried = [h for h in world.timeline.of("call") if h.name == f"ec2 {operation}"]
    assert 0 < len(tried) <= 24
    assert is_true(node_pool(world), "Paused")
    assert text in message(node_pool(world), "Paused")
    assert any(text in e["message"] for e in events(world, kind="NodeClaim"))
    world.faults.clear()
    world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=timedelta(hours=1))
    world.run_for(5 * MINUTE)
    assert_nothing_lost_or_doubled(world, pods=4)
