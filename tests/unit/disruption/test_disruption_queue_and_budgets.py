from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import Condition, with_condition
from shared.api.nodepool import Budget
from shared.api.validation.nodepool import validate_node_pool
from shared.base.struct import with_fields
from shared.disruption import budgets, disruption_cost, disruption_queue
from shared.disruption.budgets import BudgetTracker
from shared.disruption.candidates import initialized_nodes

if TYPE_CHECKING:
    from shared.api.nodeclaim import NodeClaim
    from tests.unit.disruption.conftest import Cluster

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def marked(cluster: Cluster, *replacements: str) -> None:
    """Queue the first claim with these replacements."""
    mark = disruption_queue.QueueEntry(id="1", reason="Underutilized", since=NOW, replacements=list(replacements))
    claim = disruption_queue.with_disruption_condition(
        disruption_queue.with_queue_entry(cluster.claims[0], mark), mark, now=NOW
    )
    cluster.claims[0] = claim


def starting(claim: NodeClaim) -> NodeClaim:
    conditions = with_condition(
        claim.status.conditions, nodeclaim.INITIALIZED, status=None, reason="NodeNotReady", now=NOW, generation=1
    )
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))


def test_a_claim_is_deleted_when_all_replacements_are_initialized(cluster: Cluster) -> None:
    for name in ("old", "new"):
        cluster.node(name, 1)
    marked(cluster, "claim-new")
    up = cluster.claims[1]
    cluster.claims[1] = starting(up)
    result = disruption_queue.queue_status(cluster.claims, now=NOW)
    assert (result.completed, result.rollbacks, result.waiting_since is not None) == ((), (), True)
    cluster.claims[1] = up
    result = disruption_queue.queue_status(cluster.claims, now=NOW)
    assert [c.name for c, _ in result.completed] == ["claim-old"]
    assert disruption_queue.replacement_names(cluster.claims) == {"claim-new", "new"}


def test_a_late_replacement_rolls_the_command_back_after_ten_minutes_and_stays(cluster: Cluster) -> None:
    for name in ("old", "new"):
        cluster.node(name, 1)
    marked(cluster, "claim-new")
    cluster.claims[1] = starting(cluster.claims[1])
    in_time = disruption_queue.queue_status(cluster.claims, now=NOW + timedelta(minutes=10))
    assert (in_time.rollbacks, in_time.waiting_since is not None) == ((), True)
    (undone,) = disruption_queue.queue_status(cluster.claims, now=NOW + timedelta(minutes=10, seconds=1)).rollbacks
    assert undone.surplus == ()
    assert "within 10 minutes" in undone.why


def test_a_lost_replacement_rolls_the_command_back_and_the_others_go(cluster: Cluster) -> None:
    for name in ("old", "new"):
        cluster.node(name, 1)
    marked(cluster, "claim-new", "claim-lost")
    (undone,) = disruption_queue.queue_status(cluster.claims, now=NOW).rollbacks
    assert undone.claim.name == "claim-old"
    assert undone.surplus == ("claim-new", "claim-lost")
    assert "claim-lost" in undone.why
    back = disruption_queue.without_queue_entry(disruption_queue.without_disruption_condition(undone.claim))
    assert not disruption_queue.is_queued(back)
    assert back.metadata.annotations == {}


def test_interrupted_and_unreadable_commands_are_rolled_back(cluster: Cluster) -> None:
    cluster.node("old", 1)
    marked(cluster)
    assert len(disruption_queue.queue_status(cluster.claims, now=NOW).rollbacks) == 1
    metadata = with_fields(cluster.claims[0].metadata, annotations={disruption_queue.QUEUE_ANNOTATION: "{"})
    cluster.claims[0] = with_fields(cluster.claims[0], metadata=metadata)
    assert len(disruption_queue.queue_status(cluster.claims, now=NOW).rollbacks) == 1


def test_queued_nodes_count_against_budgets_and_are_no_candidates(cluster: Cluster) -> None:
    for name in ("old", "a", "b"):
        cluster.node(name, 1)
    cluster.disruption(budgets=[Budget(nodes="1")])
    assert cluster.budget_tracker().remaining("default", "Underutilized") == 1
    marked(cluster, "claim-a")
    assert cluster.budget_tracker().remaining("default", "Underutilized") == 0
    assert "old" not in {n.metadata.name for _, n in initialized_nodes(cluster.state())}
    assert cluster.state().disrupting_nodes == {"old"}


@pytest.mark.parametrize(
    "budget",
    [
        Budget(nodes="-1"),
        Budget(nodes="-10%"),
        Budget(nodes="150%"),
        Budget(nodes="all"),
        Budget(nodes="0", schedule="61 * * * *", duration="1h"),
        Budget(nodes="0", schedule="0 0 30 2 *", duration="1h"),
        Budget(nodes="0", schedule="@daily", duration="soon"),
        Budget(nodes="0", reasons=["Boredom"]),
    ],
)
def test_an_invalid_budget_allows_nothing(cluster: Cluster, budget: Budget) -> None:
    cluster.node("n", 1)
    cluster.disruption(budgets=[budget])
    assert budgets.allowed_disruptions(cluster.pool, cluster.snapshot, reason="Underutilized", now=NOW) == 0


@pytest.mark.parametrize(("unready", "total", "holds"), [(2, 2, False), (3, 5, True), (3, 6, False), (6, 10, True)])
def test_nothing_is_disrupted_while_most_nodes_are_not_ready(
    cluster: Cluster, unready: int, total: int, *, holds: bool
) -> None:
    for number in range(total):
        cluster.node(f"n{number}", 1)
    for number in range(unready):
        status = with_fields(cluster.nodes[number].status, conditions=[Condition(type="Ready", status="Unknown")])
        cluster.nodes[number] = with_fields(cluster.nodes[number], status=status)
    cluster.disruption(budgets=[Budget(nodes="100%")])
    for reason in ("Underutilized", "Empty", "Drifted"):
        message = budgets.hold(cluster.pool, cluster.snapshot, reason=reason, now=NOW)
        assert bool(message) == holds
        if holds:
            assert message == f"nothing is disrupted while {unready} of {total} nodes in the cluster are not Ready"
            assert budgets.allowed_disruptions(cluster.pool, cluster.snapshot, reason=reason, now=NOW) == 0


@pytest.mark.parametrize(("reason", "allowed"), [("Unhealthy", 0), ("Underutilized", 1), ("Empty", 1), ("Drifted", 1)])
def test_a_budget_for_unhealthy_nodes_limits_no_other_reason(cluster: Cluster, reason: str, allowed: int) -> None:
    cluster.node("n", 1)
    cluster.disruption(budgets=[Budget(nodes="1"), Budget(nodes="0", reasons=["Unhealthy"])])
    assert not any("budgets" in problem for problem in validate_node_pool(cluster.pool))
    assert budgets.allowed_disruptions(cluster.pool, cluster.snapshot, reason=reason, now=NOW) == allowed


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        (Budget(nodes="80%", schedule="0 22-5 * * *", duration="7h"), 'schedule: "0 22-5 * * *" is not a schedule'),
        (Budget(nodes="80%", schedule="0 0 30 feb *", duration="1h"), 'schedule: "0 0 30 feb *" never comes'),
        (Budget(nodes="80%", schedule="@hourly", duration="0m"), 'duration: "0m" is never'),
        (Budget(nodes="80%", schedule="@hourly", duration="99999999999999h"), "duration: "),
    ],
)
def test_a_budget_that_the_api_server_takes_and_no_one_can_read_stops_all_disruption_and_nothing_else(
    cluster: Cluster, budget: Budget, problem: str
) -> None:
    cluster.node("n", 1)
    cluster.disruption(budgets=[Budget(nodes="100%"), budget])
    assert not any("budgets" in problem for problem in validate_node_pool(cluster.pool))
    tracker = BudgetTracker(cluster.snapshot, now=NOW)
    for reason in ("Empty", "Drifted", "Underutilized"):
        blocker = tracker.blocker("default", reason)
        assert blocker is not None
        assert f"spec.disruption.budgets[1].{problem}" in blocker.message


def test_disruptions_are_shared_by_reasons_and_none_remain_for_an_unknown_pool(cluster: Cluster) -> None:
    for i in range(10):
        cluster.node(f"n{i}", 1)
    cluster.disruption(budgets=[Budget(nodes="20%")])
    budgets = BudgetTracker(cluster.snapshot, now=NOW)
    budgets.consume("default")
    assert budgets.remaining("default", "Empty") == budgets.remaining("default", "Drifted") == 1
    assert budgets.remaining("gone", "Empty") == 0


def test_pods_cost_more_to_move_by_priority_and_deletion_cost(cluster: Cluster) -> None:
    cluster.pod("plain", "")
    cluster.pod("dear", "", annotations={"controller.kubernetes.io/pod-deletion-cost": str(2**27)})
    cluster.pod("critical", "", priority=2_000_000_000)
    cluster.pod("odd", "", annotations={"controller.kubernetes.io/pod-deletion-cost": "much"})
    assert [disruption_cost.eviction_cost(p) for p in cluster.pods] == [1.0, 2.0, 10.0, 1.0]


@pytest.mark.parametrize(
    ("annotations", "cost"),
    [
        ({names.POD_DISRUPTION_COST: str(2**27)}, 2.0),
        ({names.POD_DISRUPTION_COST: str(-(2**27)), names.POD_DELETION_COST: str(2**29)}, 0.0),
        ({names.POD_DISRUPTION_COST: "much", names.POD_DELETION_COST: str(2**27)}, 1.0),
        ({names.POD_DISRUPTION_COST: str(2**31)}, 1.0),
        ({names.POD_DELETION_COST: str(2**28)}, 3.0),
    ],
)
def test_a_pods_disruption_cost_takes_the_place_of_its_deletion_cost(
    cluster: Cluster, annotations: dict[str, str], cost: float
) -> None:
    cluster.pod("web", "", annotations=annotations)
    assert disruption_cost.eviction_cost(cluster.pods[0]) == cost
