"""Unhealthy nodes are replaced: replacement first, within budgets, in a bounded time, and not while too many are."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.kubernetes import kinds
from local.kubernetes.objects import parse_timestamp, timestamp
from local.world import Options, World, sample_objects
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj

MINUTE = timedelta(minutes=1)
TOLERATION = 10 * MINUTE
"""Of the condition below."""
FAULT = "AcceleratedHardwareReady"
REQUIREMENTS = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["c5.large"]}
ONE_A_NODE = sample_objects.one_per_node("web")
LONG = timedelta(hours=1)


def start(
    world: World,
    *,
    count: int = 5,
    annotations: dict[str, str] | None = None,
    pods: dict[str, Any] | None = None,
    **pool: Any,
) -> list[str]:
    """Nodes with one pod each, in a NodePool that repairs them; returns their names."""
    world.apply(sample_objects.node_class(world))
    pool = {"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}, **pool}
    enabled = {"tenon.sh/repair": "true", **(annotations or {})}
    world.apply(sample_objects.node_pool(REQUIREMENTS, annotations=enabled, **pool))
    world.apply(sample_objects.deployment("web", count, {"cpu": "1"}, affinity=ONE_A_NODE, **(pods or {})))
    world.run_until(lambda: len(running(world, "web")) == count)
    world.run_until_idle()
    return nodes(world)


def nodes(world: World) -> list[str]:
    return sorted(node["metadata"]["name"] for node in world.nodes())


def node(world: World, name: str) -> Obj:
    return world.store.get(kinds.NODES, name)


def set_condition(world: World, name: str, *, status: str, reason: str = "NvidiaXID79Error") -> None:
    """Write the condition as the node monitoring agent does."""
    condition = {
        "type": FAULT,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": timestamp(world.clock.now()),
    }
    conditions = [c for c in node(world, name)["status"]["conditions"] if c["type"] != FAULT]
    world.store.patch(kinds.NODES, name, {"status": {"conditions": [*conditions, condition]}}, subresource="status")


def fault(world: World, name: str) -> None:
    set_condition(world, name, status="False")


def heal(world: World, name: str) -> None:
    set_condition(world, name, status="True", reason="NoError")


def patch_pool(world: World, patch: dict[str, Any]) -> None:
    world.store.patch(world.store.kind("karpenter.sh/v1", "NodePool"), "default", patch)


def is_gone(world: World, name: str) -> bool:
    return name not in nodes(world)


def is_tainted(world: World, name: str) -> bool:
    taints = node(world, name)["spec"].get("taints") or []
    return any(taint["key"] == "karpenter.sh/disrupted" for taint in taints)


def deleting(world: World) -> list[str]:
    return [claim["metadata"]["name"] for claim in world.claims() if claim["metadata"].get("deletionTimestamp")]


def assert_nothing_failed(world: World) -> None:
    assert world.failures() == []
    assert world.dead_letters() == []


@pytest.mark.flow
def test_the_replacement_of_an_unhealthy_node_is_initialized_before_it_goes(world: World) -> None:
    before = start(world)
    fault(world, before[0])
    world.run_until(lambda: len(world.claims()) == 6, limit=LONG)
    assert deleting(world) == []
    least: list[int] = []

    def is_replaced() -> bool:
        standing = [n for n in world.nodes() if not n["metadata"].get("deletionTimestamp")]
        least.append(sum(n["metadata"]["labels"].get("karpenter.sh/initialized") == "true" for n in standing))
        return is_gone(world, before[0])

    world.run_until(is_replaced, limit=LONG)
    world.run_until_idle()
    assert min(least) == 5
    assert len(nodes(world)) == len(running(world, "web")) == len(world.instances()) == 5
    (event,) = events(world, "DisruptionTerminating")
    assert "Unhealthy: condition AcceleratedHardwareReady has been False (NvidiaXID79Error)" in event["message"]
    assert_nothing_failed(world)


def test_pods_of_a_silent_node_run_elsewhere_already_and_it_goes_without_another_replacement(world: World) -> None:
    before = start(world)
    world.kubelets[0].stop_heartbeat(before[0], world.clock.now())
    world.run_until(lambda: len(running(world, "web")) == 5 and len(world.claims()) == 6, limit=LONG)
    world.run_until(lambda: is_gone(world, before[0]), limit=LONG)
    world.run_for(5 * MINUTE)
    assert len(world.aws.instances.all) == 6
    assert len(running(world, "web")) == len(world.instances()) == len(world.claims()) == 5
    assert_nothing_failed(world)


def test_a_budget_holds_until_it_is_lifted(world: World) -> None:
    budgets = [{"nodes": "100%"}, {"nodes": "0", "reasons": ["Unhealthy"]}]
    before = start(world, disruption={"consolidateAfter": "Never", "budgets": budgets})
    fault(world, before[0])
    world.run_for(TOLERATION + 10 * MINUTE)
    assert nodes(world) == before
    assert len(world.claims()) == 5
    (event,) = events(world, "DisruptionBlocked", name=before[0])
    assert "allow no more disruptions for reason Unhealthy" in event["message"]
    patch_pool(world, {"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})
    world.run_until(lambda: is_gone(world, before[0]), limit=LONG)


def test_nothing_is_repaired_while_more_than_a_fifth_is_unhealthy(world: World) -> None:
    before = start(world)
    for name in before[:2]:
        fault(world, name)
    world.run_for(TOLERATION + 35 * MINUTE)
    assert nodes(world) == before
    assert len(world.claims()) == 5
    blocked = events(world, "NodeRepairBlocked")
    assert sorted(e["involvedObject"]["kind"] for e in blocked) == [
        "Node",
        "Node",
        "NodeClaim",
        "NodeClaim",
        "NodePool",
    ]
    assert {e["count"] for e in blocked} == {3}  # each 15 minutes
    heal(world, before[0])
    world.run_until(lambda: is_gone(world, before[1]), limit=LONG)
    assert before[0] in nodes(world)


def test_an_annotation_lets_a_small_pool_repair_two_nodes_one_after_the_other(world: World) -> None:
    before = start(world, count=3, annotations={"tenon.sh/repair-limit": "2"})
    for name in before[:2]:
        fault(world, name)
    most: list[int] = []

    def are_gone() -> bool:
        most.append(len(world.claims()))
        return is_gone(world, before[0]) and is_gone(world, before[1])

    world.run_until(are_gone, limit=LONG)
    world.run_until_idle()
    assert before[2] in nodes(world)
    assert len(running(world, "web")) == 3
    assert_nothing_failed(world)


@pytest.mark.calm_world  # exact minutes
def test_a_drain_that_pods_block_ends_at_the_deadline(world: World) -> None:
    keep = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}, "terminationGracePeriodSeconds": 10}
    before = start(world, pods=keep, template={"terminationGracePeriod": "2m"})
    fault(world, before[0])
    world.run_until(lambda: deleting(world) != [], limit=LONG)
    since = world.clock.now()
    world.run_for(timedelta(seconds=90))
    assert len([p for p in world.pods(node=before[0]) if not p["metadata"].get("deletionTimestamp")]) == 1
    world.run_until(lambda: is_gone(world, before[0]), limit=LONG)
    assert world.clock.now() - since < 3 * MINUTE
    world.run_until(lambda: len(running(world, "web")) == 5)
    assert len(nodes(world)) == 5


@pytest.mark.calm_world  # exact minutes
def test_without_a_termination_grace_period_the_policy_bounds_the_drain(world: World) -> None:
    keep = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    before = start(world, pods=keep)
    fault(world, before[0])
    world.run_until(lambda: deleting(world) != [], limit=LONG)
    since = world.clock.now()
    (claim,) = deleting(world)
    world.run_for(MINUTE)
    stored = world.store.get(world.store.kind("karpenter.sh/v1", "NodeClaim"), claim)
    deadline = stored["metadata"]["annotations"]["karpenter.sh/nodeclaim-termination-timestamp"]
    assert abs((parse_timestamp(deadline) - since) - 5 * MINUTE) <= timedelta(seconds=1)
    world.run_until(lambda: is_gone(world, before[0]), limit=LONG)
    assert 4 * MINUTE < world.clock.now() - since < 6 * MINUTE  # the pods have their own grace period before it


def test_do_not_repair_keeps_a_node_and_do_not_disrupt_does_not(world: World) -> None:
    before = start(world)
    annotations = {"karpenter.sh/do-not-repair": "true", "karpenter.sh/do-not-disrupt": "true"}
    world.store.patch(kinds.NODES, before[0], {"metadata": {"annotations": annotations}})
    fault(world, before[0])
    world.run_for(TOLERATION + 5 * MINUTE)
    assert nodes(world) == before
    (event,) = events(world, "DisruptionBlocked", name=before[0])
    assert "karpenter.sh/do-not-repair" in event["message"]
    world.store.patch(kinds.NODES, before[0], {"metadata": {"annotations": {"karpenter.sh/do-not-repair": None}}})
    world.run_until(lambda: is_gone(world, before[0]), limit=LONG)


def test_a_node_that_never_is_initialized_is_repaired_in_the_end() -> None:
    broken: list[str] = []

    def never_ready_once(machine: Any) -> MachineBehavior:
        if not broken:
            broken.append(machine.instance_id)
        return MachineBehavior(never_ready=machine.instance_id in broken)

    with World(cluster="demo", options=Options(behavior=never_ready_once)) as world:
        world.apply(sample_objects.node_class(world))
        budgets = [{"nodes": "0"}]
        disruption = {"consolidateAfter": "Never", "budgets": budgets}
        annotations = {"tenon.sh/repair": "true"}
        world.apply(sample_objects.node_pool(REQUIREMENTS, annotations=annotations, disruption=disruption))
        world.apply(sample_objects.deployment("web", 1, {"cpu": "1"}, affinity=ONE_A_NODE))
        world.run_until(lambda: len(world.nodes()) == 1)
        first = nodes(world)[0]
        world.run_for(25 * MINUTE)
        assert first in nodes(world)
        world.run_until(lambda: len(running(world, "web")) == 1 and is_gone(world, first), limit=LONG)
        assert {i.id for i in world.instances()}.isdisjoint(broken)
        assert_nothing_failed(world)


def test_a_node_that_recovers_meanwhile_stays_and_its_replacement_goes(world: World) -> None:
    before = start(world)
    fault(world, before[0])
    world.run_until(lambda: len(world.claims()) == 6 and is_tainted(world, before[0]), limit=LONG)
    heal(world, before[0])
    world.run_until(lambda: not is_tainted(world, before[0]), limit=LONG)
    world.run_until(lambda: len(world.instances()) == 5, limit=LONG)
    world.run_for(5 * MINUTE)
    assert nodes(world) == before
    assert len(world.claims()) == 5
    (event,) = events(world, "DisruptionUndone")
    assert event["message"] == f"Unhealthy: node {before[0]} is healthy again"
    assert_nothing_failed(world)


def test_a_static_pool_never_lacks_a_node(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    annotations = {"tenon.sh/repair": "true"}
    pool = sample_objects.node_pool(REQUIREMENTS, annotations=annotations, replicas=2, limits={"nodes": "3"})
    world.apply(pool)
    world.run_until(lambda: len(standing(world)) == 2)
    world.run_until_idle()
    before = standing(world)
    fault(world, before[0])
    least: list[int] = []

    def is_replaced() -> bool:
        least.append(len(standing(world)))
        return is_gone(world, before[0])

    world.run_until(is_replaced, limit=LONG)
    world.run_until_idle()
    assert min(least) == 2
    assert len(standing(world)) == len(world.instances()) == 2


def test_a_static_pool_at_its_limit_lets_the_node_go_first_if_its_owner_allows_that(world: World) -> None:
    world.apply(sample_objects.node_class(world))
    annotations = {"tenon.sh/repair": "true", "tenon.sh/terminate-first": "true"}
    world.apply(sample_objects.node_pool(REQUIREMENTS, annotations=annotations, replicas=1, limits={"nodes": "1"}))
    world.run_until(lambda: len(standing(world)) == 1)
    world.run_until_idle()
    (before,) = standing(world)
    fault(world, before)
    most: list[int] = []

    def is_replaced() -> bool:
        most.append(len(world.claims()))
        return len(standing(world)) == 1 and is_gone(world, before)

    world.run_until(is_replaced, limit=LONG)
    world.run_until_idle()
    assert max(most) == 1
    assert len(world.instances()) == 1
    assert_nothing_failed(world)


def standing(world: World) -> list[str]:
    return sorted(
        n["metadata"]["name"]
        for n in world.nodes()
        if n["metadata"]["labels"].get("karpenter.sh/initialized") == "true"
        and not n["metadata"].get("deletionTimestamp")
    )
