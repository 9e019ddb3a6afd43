"""Which unhealthy nodes are repaired, in which order, what keeps them from it, and what replaces them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.explain.node_checks import NodeChecks
from shared.api import labels as names
from shared.api.duration import format_duration
from shared.api.nodeclaim import NodeClaimSpec
from shared.api.nodepool import Budget
from shared.base.struct import with_fields
from shared.disruption import disruption_queue, emptiness, methods, repair
from shared.disruption.candidates import all_candidates
from shared.disruption.command import REPLACE, MethodResult
from shared.disruption.disruption_queue import queue_status
from tests.unit.disruption.conftest import NOW
from tests.unit.disruption.unhealthy_cluster import (
    LIMIT,
    annotate,
    annotate_pool,
    blocked,
    break_node,
    compute,
    heal,
    minutes,
    queue,
    repaired,
    spec,
    the_command,
    uninitialize,
    with_repair,
)

if TYPE_CHECKING:
    from tests.unit.disruption.conftest import Cluster


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """A cluster with node repair."""
    return with_repair(cluster)


# --- which nodes ---


def test_it_is_the_first_method_and_off_by_default(cluster: Cluster) -> None:
    first = methods.METHODS[0]
    break_node(cluster, "a")
    command = the_command(cluster)
    assert command.reason == first.REASON
    assert first.find_candidates(cluster.state()) == repair.find_candidates(cluster.state()) != ()
    assert first.compute(cluster.state(), cluster.budget_tracker(), bool) == compute(cluster)
    assert first.validate(command, cluster.state(), cluster.budget_tracker()) == ""
    annotate_pool(cluster, {"tenon.sh/repair": "false"})
    assert first.find_candidates(cluster.state()) == repair.find_candidates(cluster.state()) == ()
    assert first.compute(cluster.state(), cluster.budget_tracker(), bool) == compute(cluster) == MethodResult()
    assert first.validate(command, cluster.state(), cluster.budget_tracker()) == "Unhealthy was turned off"


def test_it_is_not_imported_while_no_nodepool_has_turned_it_on() -> None:
    code = "import functions.disruption.handler, sys; print(*sys.modules)"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "shared.disruption.methods" in modules
    assert [name for name in modules if name.startswith("shared.disruption.repair")] == []


def test_nodes_are_repaired_one_after_the_other_the_longest_unhealthy_first(cluster: Cluster) -> None:
    annotate_pool(cluster, {LIMIT: "100%"})
    for name, ago in (("a", 40), ("b", 60), ("c", 50)):
        break_node(cluster, name, ago=minutes(ago))
    assert [c.name for c in repair.find_candidates(cluster.state())] == ["b", "c", "a"]
    assert repaired(cluster) == ["b"]


def test_of_equally_unhealthy_nodes_the_one_whose_pods_cost_least_goes_first_then_the_first_by_name(
    cluster: Cluster,
) -> None:
    annotate_pool(cluster, {LIMIT: "100%"})
    cluster.pod("more", "a", 100)
    for name in "abc":
        break_node(cluster, name)
    assert [c.name for c in repair.find_candidates(cluster.state())] == ["b", "c", "a"]


@pytest.mark.parametrize("on_claim", [False, True], ids=["node", "NodeClaim"])
def test_do_not_repair_keeps_a_node_and_do_not_disrupt_does_not(cluster: Cluster, *, on_claim: bool) -> None:
    break_node(cluster, "a")
    annotate(cluster, "a", {names.DO_NOT_DISRUPT: "true"}, claim=on_claim)
    assert repaired(cluster) == ["a"]
    annotate(cluster, "a", {names.DO_NOT_REPAIR: "true"}, claim=on_claim)
    assert repaired(cluster) == []
    assert "karpenter.sh/do-not-repair" in blocked(cluster)["a"]


def test_a_node_whose_toleration_is_not_over_is_looked_at_when_it_is(cluster: Cluster) -> None:
    break_node(cluster, "a", ago=minutes(29))
    result = compute(cluster)
    assert (result.commands, result.blocked) == ((), ())
    assert result.requeue_at == NOW + minutes(1)


def test_nodes_that_go_already_and_paused_pools_are_left_alone(cluster: Cluster) -> None:
    break_node(cluster, "a")
    queue(cluster, "a", "claim-b")
    assert repaired(cluster) == []
    cluster.claims[0] = disruption_queue.without_queue_entry(cluster.claims[0])
    annotate_pool(cluster, {"tenon.sh/paused": "true"})
    assert repaired(cluster) == []


# --- pods ---


def test_pods_that_cannot_be_evicted_are_no_obstacle_since_the_drain_is_bounded(cluster: Cluster) -> None:
    break_node(cluster, "a")
    cluster.pod("kept", "a", 2000, annotations={names.DO_NOT_DISRUPT: "true"})
    cluster.pod_budget(0)
    command = the_command(cluster)
    assert command.nodes == ("a",)
    assert set(command.removals[0].pods) == {"default/pod-a", "default/kept"}
    assert {p for c in command.replacements for p in c.pods} == {"default/pod-a", "default/kept"}


@pytest.mark.parametrize(("own", "is_blocked"), [(None, True), ("1h", False)])
def test_where_no_grace_period_bounds_the_drain_they_block(
    cluster: Cluster, own: str | None, *, is_blocked: bool
) -> None:
    cluster.node("f", 4, spec=NodeClaimSpec(expire_after="Never", termination_grace_period=own))
    cluster.pod("kept", "f", annotations={names.DO_NOT_DISRUPT: "true"})
    break_node(cluster, "f")
    (unhealthy,) = repair.unhealthy_nodes(cluster.state())
    unbounded = with_fields(unhealthy, decision=with_fields(unhealthy.decision, grace_period=None))
    blocker = repair.blocker(cluster.state(), cluster.budget_tracker(), unbounded, {})
    assert (blocker is not None) == is_blocked
    assert blocker is None or "kept has annotation karpenter.sh/do-not-disrupt, and no termination" in blocker.message


@pytest.mark.parametrize(("own", "drain"), [(None, 10), ("5m", 5), ("1h", 10)])
def test_the_drain_takes_the_shorter_of_the_two_grace_periods(cluster: Cluster, own: str | None, drain: int) -> None:
    cluster.node("f", 4, spec=NodeClaimSpec(expire_after="Never", termination_grace_period=own))
    break_node(cluster, "f")
    assert the_command(cluster).grace_period == minutes(drain)


def test_pods_that_fit_elsewhere_need_no_replacement(cluster: Cluster) -> None:
    cluster.node("room", 8)
    break_node(cluster, "a")
    assert the_command(cluster).replacements == ()


def test_pods_that_were_evicted_from_a_silent_node_count_once(cluster: Cluster) -> None:
    """Kubernetes deletes them after 300 s; their successors have nodes already."""
    break_node(cluster, "a", status="Unknown")
    i = [p.metadata.name for p in cluster.pods].index("pod-a")
    deleted = with_fields(cluster.pods[i].metadata, deletion_timestamp=NOW - minutes(40))
    cluster.pods[i] = with_fields(cluster.pods[i], metadata=deleted)
    cluster.node("new", 4)
    cluster.pod("pod-a2", "new", 3000)
    command = the_command(cluster)
    assert (command.replacements, command.pod_count) == ((), 0)


def test_a_node_whose_pods_fit_nowhere_stays_with_the_reason_and_the_next_is_repaired(cluster: Cluster) -> None:
    annotate_pool(cluster, {LIMIT: "2"})
    cluster.node("big", 8)
    cluster.pod("huge", "big", 7000, node_selector={"example.com/rack": "7"})
    break_node(cluster, "big", ago=minutes(90))
    break_node(cluster, "a")
    assert repaired(cluster) == ["a"]
    assert "pod default/huge can't be scheduled on another node" in blocked(cluster)["big"]


def test_pods_do_not_wait_for_a_node_that_may_never_be_initialized(cluster: Cluster) -> None:
    cluster.node("starting", 4)
    uninitialize(cluster, "starting")
    break_node(cluster, "a")
    assert repaired(cluster) == []
    assert "would go to node starting, which isn't initialized yet" in blocked(cluster)["a"]


# --- budgets ---


def test_budgets_for_unhealthy_nodes_hold_and_others_do_not_matter(cluster: Cluster) -> None:
    break_node(cluster, "a")
    spec(cluster, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="0", reasons=["Empty"])]))
    assert repaired(cluster) == ["a"]
    budgets = [Budget(nodes="100%"), Budget(nodes="0", reasons=["Unhealthy"])]
    spec(cluster, disruption=with_fields(cluster.pool.spec.disruption, budgets=budgets))
    assert repaired(cluster) == []
    assert "allow no more disruptions for reason Unhealthy" in blocked(cluster)["a"]


def test_unready_nodes_take_the_budgets_of_all_reasons_but_repairs(cluster: Cluster) -> None:
    spec(cluster, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="1")]))
    break_node(cluster, "a")
    tracker = cluster.budget_tracker()
    assert [tracker.remaining("default", r) for r in ("Unhealthy", "Drifted", "Empty")] == [1, 0, 0]
    queue(cluster, "b", "claim-c")
    assert cluster.budget_tracker().remaining("default", "Unhealthy") == 0


def test_a_repair_takes_the_budgets_of_the_methods_after_it(cluster: Cluster) -> None:
    spec(cluster, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="1")]))
    break_node(cluster, "a", type="KernelReady")
    cluster.node("room", 8)
    i = [c.name for c in cluster.claims].index("claim-room")
    cluster.claims[i] = emptiness.with_empty_condition(cluster.claims[i], is_empty=True, now=NOW - minutes(60))
    tracker = cluster.budget_tracker()
    assert len(repair.compute(cluster.state(), tracker).commands) == 1
    assert emptiness.compute(cluster.state(), tracker).commands == ()


def test_a_node_that_never_was_initialized_is_repaired_and_needs_no_budget(cluster: Cluster) -> None:
    spec(cluster, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="0")]))
    cluster.pods = [p for p in cluster.pods if p.spec.node_name != "a"]
    uninitialize(cluster, "a")
    break_node(cluster, "a")
    tracker = cluster.budget_tracker()
    (command,) = repair.compute(cluster.state(nominated=frozenset({"a"})), tracker).commands
    assert command.nodes == ("a",)


# --- static pools ---


def test_a_static_pool_gets_its_replacement_within_its_limits(cluster: Cluster) -> None:
    spec(cluster, replicas=5)
    break_node(cluster, "a")
    assert len(the_command(cluster).replacements) == 1
    spec(cluster, limits={"nodes": "6"})
    assert len(the_command(cluster).replacements) == 1
    spec(cluster, limits={"nodes": "5"})
    assert repaired(cluster) == []
    assert "no replacement can be launched: " in blocked(cluster)["a"]
    assert 'annotation tenon.sh/terminate-first: "true"' in blocked(cluster)["a"]


def test_a_static_pool_at_its_limit_lets_the_node_go_first_if_its_owner_allows_that(cluster: Cluster) -> None:
    spec(cluster, replicas=5, limits={"nodes": "5"})
    annotate_pool(cluster, {"tenon.sh/terminate-first": "true"})
    break_node(cluster, "a")
    command = the_command(cluster)
    assert (command.replacements, command.terminate_first) == ((), "static-at-limit")
    assert (command.grace_period, command.repair_action) == (minutes(10), REPLACE)
    assert "it goes before its replacement comes" in command.message
    spec(cluster, replicas=6, limits={"nodes": "6"})
    assert repaired(cluster) == []
    assert "lacks a node, which is launched first" in blocked(cluster)["a"]


def test_a_static_pool_that_is_scaled_down_or_replaces_a_node_waits(cluster: Cluster) -> None:
    spec(cluster, replicas=4)
    break_node(cluster, "a")
    assert repaired(cluster) == []
    assert "scaled down" in blocked(cluster)["a"]
    spec(cluster, replicas=6)
    assert len(the_command(cluster).replacements) == 1


# --- the command ---


@pytest.mark.parametrize("reason", ["NvidiaXID48Error", "NvidiaXID79Error"])
def test_the_command_replaces_the_node_and_has_the_policys_grace_period(cluster: Cluster, reason: str) -> None:
    break_node(cluster, "a", type="AcceleratedHardwareReady", reason=reason, ago=minutes(11))
    command = the_command(cluster)
    assert (command.repair_action, command.grace_period) == (REPLACE, minutes(5))
    assert command.message == f"condition AcceleratedHardwareReady has been False ({reason}) for 0:10:00"


def test_a_command_is_valid_as_long_as_the_node_is_unhealthy(cluster: Cluster) -> None:
    break_node(cluster, "a")
    command = the_command(cluster)
    assert repair.validate(command, cluster.state(), cluster.budget_tracker()) == ""
    annotate(cluster, "a", {names.DO_NOT_REPAIR: "true"})
    assert "do-not-repair" in repair.validate(command, cluster.state(), cluster.budget_tracker())
    heal(cluster, "a")
    assert "no longer unhealthy" in repair.validate(command, cluster.state(), cluster.budget_tracker())


@pytest.mark.parametrize("change", ["heal", "veto", "turn off"])
def test_a_queued_repair_that_is_not_needed_any_more_is_rolled_back_with_its_replacement(
    cluster: Cluster, change: str
) -> None:
    break_node(cluster, "a")
    queue(cluster, "a", "claim-b")
    assert methods.withdrawn(cluster.state()) == {}
    assert len(queue_status(cluster.claims, now=NOW, withdrawn=methods.withdrawn(cluster.state())).completed) == 1
    if change == "heal":
        heal(cluster, "a")
    elif change == "veto":
        annotate(cluster, "a", {names.DO_NOT_REPAIR: "true"})
    else:
        annotate_pool(cluster, {"tenon.sh/repair": "false"})
    status = queue_status(cluster.claims, now=NOW, withdrawn=methods.withdrawn(cluster.state()))
    assert status.completed == ()
    (rollback,) = status.rollbacks
    assert (rollback.claim.name, rollback.surplus) == ("claim-a", ("claim-b",))
    assert ("healthy again" in rollback.why) == (change == "heal")


def test_commands_of_other_reasons_are_not_rolled_back_because_the_node_is_healthy(cluster: Cluster) -> None:
    queue(cluster, "a", "claim-b", reason="Drifted")
    assert methods.withdrawn(cluster.state()) == {}


def test_the_bound_of_the_drain_is_on_the_claim_while_it_is_queued(cluster: Cluster) -> None:
    claim = queue(cluster, "a")
    assert claim.metadata.annotations[names.TERMINATION_GRACE_PERIOD] == format_duration(minutes(10))
    back = disruption_queue.without_queue_entry(claim)
    assert names.TERMINATION_GRACE_PERIOD not in back.metadata.annotations


def test_explain_says_that_a_node_is_unhealthy_and_what_its_budgets_allow(cluster: Cluster) -> None:
    break_node(cluster, "a", reason="KubeletNotReady")
    (candidate,) = repair.find_candidates(cluster.state())
    checks = {check.name: check for check in NodeChecks(view=cluster.state(), candidate=candidate).all()}
    assert checks["unhealthy"].detail == "condition Ready has been False (KubeletNotReady) for 0:30:00"
    assert checks["budgets for Unhealthy"].detail == "NodePool default allows 5 more now"
    heal(cluster, "a")
    (healthy, *_) = all_candidates(cluster.state())
    assert "unhealthy" not in {check.name for check in NodeChecks(view=cluster.state(), candidate=healthy).all()}
