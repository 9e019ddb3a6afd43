"""Node repair reboots nodes in place where their policy and their NodePool say so."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.world import World, sample_objects
from local.world.options import Options
from shared.api import labels as names
from tests.e2e.rebooting_nodes import (
    MINUTE,
    ON,
    POOL,
    TIMING,
    assert_no_failures,
    boot_id,
    calls,
    claim_of,
    condition,
    is_called,
    is_deleted,
    is_initialized,
    rebooting,
    start,
    succeeded,
)
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster whose deployment may reboot instances."""
    with World(cluster="demo", options=Options(context=ON, timing=TIMING)) as running_world:
        yield running_world


FAULT = "AcceleratedHardwareReady"
REBOOTS = {"tenon.sh/repair": "reboot"}
BUDGET_OF_ONE = {"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}


def set_fault(world: World, name: str, *, broken: bool) -> None:
    """What the node monitoring agent writes about a GPU's fault that is gone after a reboot."""
    node = world.store.get(kinds.NODES, name)
    at = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    status, reason = ("False", "NvidiaXID48Error") if broken else ("True", "AcceleratedHardwareIsReady")
    fault = {"type": FAULT, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}
    rest = [c for c in node["status"]["conditions"] if c["type"] != FAULT]
    world.store.patch(kinds.NODES, name, {"status": {"conditions": [*rest, fault]}}, subresource="status")


def test_an_unhealthy_node_is_rebooted_twice_and_then_replaced(world: World) -> None:
    claim = start(world, annotations=REBOOTS)
    name = world.nodes(POOL)[0]["metadata"]["name"]
    boot_ids = {boot_id(world.nodes(POOL)[0])}
    set_fault(world, name, broken=True)
    broken_at = world.clock.now()
    world.run_until(lambda: rebooting(world, claim["metadata"]["name"])[0] == "True", limit=12 * MINUTE)
    requested = claim_of(world, claim["metadata"]["name"])
    assert FAULT in condition(requested, "Rebooting")["message"]
    assert condition(requested, "DisruptionReason")["status"] == "True"
    assert requested["metadata"]["annotations"][names.REBOOT_GRACE_PERIOD] == "5m"
    for number in (1, 2):
        world.run_until(partial(is_called, world, number), limit=20 * MINUTE)
        world.run_until(lambda: succeeded(world, claim), limit=5 * MINUTE)
        boot_ids.add(boot_id(world.nodes(POOL)[0]))
        assert len(world.claims()) == 1
    world.run_until(lambda: is_deleted(world, claim["metadata"]["name"]), limit=20 * MINUTE)
    # As long as Karpenter's own suite waits for it: three times a toleration of ten minutes, and two reboots.
    assert world.clock.now() - broken_at < 35 * MINUTE
    world.run_until(lambda: name not in {n["metadata"]["name"] for n in world.nodes(POOL)}, limit=20 * MINUTE)
    world.run_until(lambda: len(running(world)) == 1, limit=10 * MINUTE)
    assert (len(boot_ids), calls(world), len(world.aws.instances.all)) == (3, 2, 2)
    assert_no_failures(world)


def test_no_more_nodes_reboot_at_once_than_the_budget_allows(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    world.apply(
        sample_objects.node_pool(
            {names.INSTANCE_TYPE: ["m5.large"]}, name=POOL, annotations=REBOOTS, disruption=BUDGET_OF_ONE
        )
    )
    world.apply(sample_objects.deployment("web", 10, {"cpu": "1100m"}))
    world.run_until(lambda: len(running(world, "web")) == 10 and all(map(is_initialized, world.nodes(POOL))))
    claims = {c["status"]["nodeName"]: c["metadata"]["name"] for c in world.claims()}
    broken = sorted(claims)[:2]
    for name in broken:
        set_fault(world, name, broken=True)
    most = 0
    is_fixed: set[str] = set()
    for _ in range(600):
        states = {name: rebooting(world, claims[name]) for name in broken}
        most = max(most, sum(status == "True" for status, _ in states.values()))
        for name in {n for n, (status, _) in states.items() if status == "True"} - is_fixed:
            set_fault(world, name, broken=False)
            is_fixed.add(name)
        if all(reason == "RebootSucceeded" for _, reason in states.values()):
            break
        world.run_for(timedelta(seconds=5))
    assert (most, is_fixed, calls(world)) == (1, set(broken), 2)
    world.run_until(lambda: len(running(world, "web")) == 10, limit=5 * MINUTE)
    assert len(world.aws.instances.all) == 10
    assert_no_failures(world)


def test_where_reboots_are_off_an_unhealthy_node_is_replaced_first_and_an_event_names_the_option() -> None:
    with World(cluster="demo", options=Options(timing=TIMING)) as world:
        start(world, annotations=REBOOTS)
        set_fault(world, world.nodes(POOL)[0]["metadata"]["name"], broken=True)
        world.run_until(lambda: len(world.aws.instances.all) == 2 and len(world.claims()) == 1, limit=30 * MINUTE)
        assert "-c reboot=on" in events(world, "RebootNotPossible")[0]["message"]
        assert_no_failures(world)
