"""A node that reboots in place keeps its instance, its name and the pods that can't be evicted; or it is replaced.

The requests are written as Karpenter 1.15 writes them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.faults import Fault
from local.kubelets.behavior import MachineBehavior
from local.kubernetes import kinds
from local.world import World
from local.world.options import Options
from shared.api import labels as names
from tests.e2e.rebooting_nodes import (
    MINUTE,
    ON,
    POOL,
    TIMING,
    annotate,
    assert_no_failures,
    boot_id,
    calls,
    claim_of,
    condition,
    is_deleted,
    is_initialized,
    rebooting,
    request,
    set_conditions,
    start,
    succeeded,
    taints,
)
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    """A cluster whose deployment may reboot instances."""
    with World(cluster="demo", options=Options(context=ON, timing=TIMING)) as running_world:
        yield running_world


@pytest.mark.flow
def test_a_node_reboots_in_place_and_pods_that_cannot_be_evicted_ride_along(world: World) -> None:
    claim = start(world, protected=1)
    (before,) = world.nodes(POOL)
    (kept,), (web,) = running(world, "kept"), running(world, "web")
    request(world, claim)
    world.run_until(lambda: names.REBOOTING_TAINT in taints(world.nodes(POOL)[0]), limit=2 * MINUTE)
    world.run_until(lambda: bool(world.pending()), limit=MINUTE)
    world.run_until(lambda: rebooting(world, claim["metadata"]["name"])[1] == "RebootIssued", limit=3 * MINUTE)
    issued = claim_of(world, claim["metadata"]["name"])
    assert condition(issued, "Initialized") | {"lastTransitionTime": ""} == {
        "type": "Initialized",
        "status": "Unknown",
        "reason": "Rebooting",
        "message": "the node is rebooting",
        "lastTransitionTime": "",
        "observedGeneration": issued["metadata"]["generation"],
    }
    assert condition(issued, "Ready")["status"] == "Unknown"
    assert not is_initialized(world.nodes(POOL)[0])
    world.run_until(lambda: succeeded(world, claim), limit=5 * MINUTE)
    world.run_until(lambda: len(running(world)) == 2, limit=2 * MINUTE)
    (after,) = world.nodes(POOL)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert boot_id(after) != boot_id(before)
    assert not taints(after)
    assert running(world, "kept")[0]["metadata"]["uid"] == kept["metadata"]["uid"]
    assert running(world, "web")[0]["metadata"]["uid"] != web["metadata"]["uid"]
    assert [c["metadata"]["name"] for c in world.claims()] == [claim["metadata"]["name"]]
    assert (len(world.aws.instances.all), calls(world)) == (1, 1)
    ended = claim_of(world, claim["metadata"]["name"])
    assert not condition(ended, "DisruptionReason")
    assert names.PRE_BOOT_ID not in ended["metadata"]["annotations"]
    assert events(world, "RebootObserved", kind="NodeClaim")
    assert_no_failures(world)


def test_without_a_grace_period_a_reboot_is_called_at_once_and_all_pods_ride_along(world: World) -> None:
    claim = start(world, evictable=2)
    pods = {p["metadata"]["uid"] for p in running(world)}
    request(world, claim, grace="0s")
    world.run_until(lambda: calls(world) == 1, limit=MINUTE + timedelta(seconds=5))
    world.run_until(lambda: succeeded(world, claim), limit=5 * MINUTE)
    assert {p["metadata"]["uid"] for p in running(world)} == pods
    assert_no_failures(world)


def test_a_silent_kubelet_is_back_after_the_reboot(world: World) -> None:
    claim = start(world)
    (node,) = world.nodes(POOL)
    world.kubelets[0].stop_heartbeat(node["metadata"]["name"], world.clock.now())
    world.run_for(2 * MINUTE)
    request(world, claim)
    world.run_until(lambda: succeeded(world, claim), limit=10 * MINUTE)
    assert len(world.aws.instances.all) == 1
    assert_no_failures(world)


def test_a_pod_disruption_budget_holds_until_the_grace_period_is_over(world: World) -> None:
    claim = start(world)
    world.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
    )
    (pod,) = running(world, "web")
    requested = world.clock.now()
    request(world, claim, grace="5m")
    world.run_until(lambda: calls(world) == 1, limit=10 * MINUTE)
    assert world.clock.now() - requested >= 5 * MINUTE
    world.run_until(lambda: succeeded(world, claim), limit=5 * MINUTE)
    assert running(world, "web")[0]["metadata"]["uid"] == pod["metadata"]["uid"]


def test_an_instance_that_never_comes_back_is_replaced_after_twenty_minutes() -> None:
    lost: list[str] = []

    def behavior(machine: Any) -> MachineBehavior:
        lost.append(machine.instance_id)
        return MachineBehavior(never_returns=machine.instance_id == lost[0])

    with World(cluster="demo", options=Options(context=ON, timing=TIMING, behavior=behavior)) as world:
        claim = start(world, protected=1)
        request(world, claim)
        world.run_until(lambda: calls(world) == 1, limit=5 * MINUTE)
        called = world.clock.now()
        world.run_until(lambda: bool(events(world, "RebootFailed")), limit=30 * MINUTE)
        assert 20 * MINUTE <= world.clock.now() - called <= 22 * MINUTE
        world.run_until(lambda: len(running(world)) == 2 and len(world.claims()) == 1, limit=10 * MINUTE)
        assert world.claims()[0]["metadata"]["name"] != claim["metadata"]["name"]
        assert [i.state for i in world.aws.instances.all if i.id == lost[0]] in (["shutting-down"], ["terminated"])
        assert calls(world) == 1
        assert_no_failures(world)


@pytest.mark.parametrize("is_called", [False, True], ids=["before the call", "after the call"])
def test_a_reboot_that_karpenter_prepared_is_called_once(world: World, *, is_called: bool) -> None:
    claim = start(world)
    (node,) = world.nodes(POOL)
    annotate(world, claim["metadata"]["name"], {names.PRE_BOOT_ID: "earlier" if is_called else boot_id(node)})
    request(world, claim)
    world.run_until(lambda: succeeded(world, claim), limit=5 * MINUTE)
    assert calls(world) == (0 if is_called else 1)
    assert len(world.aws.instances.all) == 1
    assert_no_failures(world)


@pytest.mark.parametrize("context", [ON, {}], ids=["with the right", "without it"])
def test_a_reboot_that_karpenter_called_is_followed_to_its_end(context: dict[str, str]) -> None:
    with World(cluster="demo", options=Options(context=context, timing=TIMING)) as world:
        claim = start(world)
        (node,) = world.nodes(POOL)
        name, at = claim["metadata"]["name"], world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        annotate(world, name, {names.PRE_BOOT_ID: boot_id(node)})
        patch = {"spec": {"taints": [{"key": names.REBOOTING_TAINT, "effect": "NoSchedule"}]}}
        world.store.patch(kinds.NODES, node["metadata"]["name"], patch)
        world.aws.instances.reboots[world.aws.instances.all[0].id] += 1
        request(world, claim, reason="RebootIssued")
        initialized = {"type": "Initialized", "status": "Unknown", "reason": "Rebooting", "message": ""}
        set_conditions(world, claim, [{**initialized, "lastTransitionTime": at}])
        world.run_until(lambda: succeeded(world, claim), limit=5 * MINUTE)
        assert not taints(world.nodes(POOL)[0])
        assert (calls(world), len(world.aws.instances.all)) == (0, 1)
        assert_no_failures(world)


def test_where_reboots_are_off_the_node_is_replaced_and_an_event_names_the_option() -> None:
    with World(cluster="demo", options=Options(timing=TIMING)) as world:
        claim = start(world)
        request(world, claim)
        world.run_until(lambda: len(world.aws.instances.all) == 2 and len(world.claims()) == 1, limit=10 * MINUTE)
        (event,) = events(world, "RebootFailed")
        assert "-c reboot=on" in event["message"]
        assert not [c for c in world.aws.calls.all if c.operation == "RebootInstances"]
        assert_no_failures(world)


def test_a_missing_right_fails_the_reboot_at_once(world: World) -> None:
    claim = start(world)
    world.faults.inject_aws("ec2", "RebootInstances", Fault(code="UnauthorizedOperation", status=403), times=10)
    request(world, claim)
    world.run_until(lambda: bool(events(world, "RebootFailed")), limit=5 * MINUTE)
    assert sum(c.operation == "RebootInstances" for c in world.aws.calls.all) == 1
    world.run_until(lambda: len(world.aws.instances.all) == 2 and len(world.claims()) == 1, limit=10 * MINUTE)


def test_a_call_that_keeps_failing_is_given_up_after_five_minutes(world: World) -> None:
    claim = start(world)
    world.faults.inject_aws("ec2", "RebootInstances", Fault(code="InternalError", status=500), times=1000)
    request(world, claim, grace="0s")
    requested = world.clock.now()
    world.run_until(lambda: bool(events(world, "RebootFailed")), limit=10 * MINUTE)
    assert 5 * MINUTE <= world.clock.now() - requested <= 8 * MINUTE


def test_a_request_that_cannot_be_read_leaves_the_node_as_it_is(world: World) -> None:
    claim = start(world)
    request(world, claim, grace="-5m")
    world.run_until(lambda: rebooting(world, claim["metadata"]["name"]) == ("False", "RebootFailed"), limit=2 * MINUTE)
    world.run_for(5 * MINUTE)
    assert len(world.claims()) == len(running(world)) == 1
    assert calls(world) == 0
    assert '"-5m"' in events(world, "RebootFailed")[0]["message"]


def test_whoever_deletes_the_nodeclaim_wins(world: World) -> None:
    claim = start(world, protected=1)
    request(world, claim, grace="10m")
    world.run_until(lambda: names.REBOOTING_TAINT in taints(world.nodes(POOL)[0]), limit=2 * MINUTE)
    kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    world.store.delete(kind, claim["metadata"]["name"])
    world.run_for(20 * MINUTE)
    assert calls(world) == 0
    assert len(running(world, "kept")) == 1


def test_a_spot_warning_wins(world: World) -> None:
    claim = start(world, protected=1)
    instance = world.aws.instances.all[0]
    assert instance.lifecycle == "spot"
    request(world, claim, grace="10m")
    world.run_until(lambda: names.REBOOTING_TAINT in taints(world.nodes(POOL)[0]), limit=2 * MINUTE)
    world.interrupt_spot([instance.id])
    world.run_until(lambda: len(running(world)) == 2 and len(world.claims()) == 1, limit=10 * MINUTE)
    assert calls(world) == 0
    assert_no_failures(world)


@pytest.mark.long
def test_a_crash_between_any_two_calls_ends_in_the_same_node() -> None:
    required = {
        *("ec2 RebootInstances", "kubernetes POST pods/NAME/eviction"),
        *("kubernetes PATCH nodes/NAME", "kubernetes PATCH nodeclaims/NAME", "kubernetes PATCH nodeclaims/NAME/status"),
    }
    with World(cluster="demo", options=Options(context=ON, timing=TIMING, hostility=None)) as world:
        claim = start(world, protected=1)
        crashes = world.faults.crash_around_each_write("lifecycle")
        for number in range(1, 6):
            request(world, claim)
            world.run_until(lambda: succeeded(world, claim), limit=60 * MINUTE)
            world.run_until(lambda: len(running(world)) == 2, limit=10 * MINUTE)
            history = claim_of(world, claim["metadata"]["name"])["metadata"]["annotations"][names.REBOOTS]
            assert len(history.split(",")) == number
        assert {(call, when) for call in required for when in ("before", "after")} <= crashes.tried
        assert len(world.aws.instances.all) == 1


def test_an_instance_that_is_terminated_while_it_reboots_is_replaced_at_once(world: World) -> None:
    claim = start(world, protected=1)
    request(world, claim)
    world.run_until(lambda: rebooting(world, claim["metadata"]["name"])[1] == "RebootIssued", limit=5 * MINUTE)
    boto3.client("ec2").terminate_instances(InstanceIds=[world.aws.instances.all[0].id])
    terminated = world.clock.now()
    world.run_until(lambda: is_deleted(world, claim["metadata"]["name"]), limit=10 * MINUTE)
    assert world.clock.now() - terminated < 5 * MINUTE
    world.run_until(lambda: len(running(world)) == 2 and len(world.claims()) == 1, limit=10 * MINUTE)
    assert not events(world, "RebootFailed")
    assert_no_failures(world)
