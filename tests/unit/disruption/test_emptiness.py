from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus
from shared.api.meta import Condition, ObjectMeta, OwnerReference
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
from shared.base.struct import with_fields
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState, workload_pods
from shared.disruption.emptiness import compute, empty_condition_changes, validate, with_empty_condition
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Collection

    from shared.disruption.command import MethodResult

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAEMON = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)


def pool(*, after: str = "30s", budgets: list[Budget] | None = None) -> NodePool:
    disruption = Disruption(
        consolidate_after=after, consolidation_policy="WhenEmpty", budgets=budgets or [Budget(nodes="100%")]
    )
    return NodePool(metadata=ObjectMeta(name="default"), spec=NodePoolSpec(disruption=disruption))


def node(name: str, *, annotations: dict[str, str] | None = None, ready: bool = True) -> Node:
    return Node(
        metadata=ObjectMeta(
            name=name, labels={names.NODEPOOL: "default", names.INITIALIZED: "true"}, annotations=annotations or {}
        ),
        spec=NodeSpec(provider_id=f"aws:///us-east-1a/i-{name}"),
        status=NodeStatus(conditions=[Condition(type="Ready", status=str(ready))]),
    )


def claim(name: str, *, empty_for: int | None = None, initialized: bool = True) -> NodeClaim:
    conditions = [Condition(type=nodeclaim.INITIALIZED, status=str(initialized))]
    if empty_for is not None:
        since = NOW - timedelta(seconds=empty_for)
        conditions.append(Condition(type=nodeclaim.EMPTY, status="True", last_transition_time=since))
    return NodeClaim(
        metadata=ObjectMeta(name=f"claim-{name}"),
        status=NodeClaimStatus(node_name=name, provider_id=f"aws:///us-east-1a/i-{name}", conditions=conditions),
    )


def pod(on: str, *, daemon: bool = False, phase: str = "Running", deleted: bool = False) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name="p",
            namespace="default",
            owner_references=[DAEMON] if daemon else [],
            deletion_timestamp=NOW if deleted else None,
        ),
        spec=PodSpec(node_name=on),
        status=PodStatus(phase=phase),
    )


def compute_for(
    *claims: NodeClaim, pods: Collection[Pod] = (), of: NodePool | None = None, nominated: str = ""
) -> MethodResult:
    snapshot = Snapshot(
        taken_at=NOW,
        node_pools=(of or pool(),),
        node_claims=claims,
        nodes=tuple(node(c.status.node_name) for c in claims),
        pods=tuple(pods),
    )
    return decide(snapshot, nominated=frozenset({nominated} - {""}))


def decide(snapshot: Snapshot, *, nominated: Collection[str] = (), now: datetime = NOW) -> MethodResult:
    state = DisruptionState(snapshot=snapshot, now=now, nominated=frozenset(nominated))
    return compute(state, BudgetTracker(snapshot, now=now))


def removed(result: MethodResult) -> list[str]:
    return [node for command in result.commands for node in command.nodes]


def test_a_node_is_deleted_when_it_has_been_empty_for_consolidate_after() -> None:
    assert removed(compute_for(claim("a", empty_for=30))) == ["a"]
    early = compute_for(claim("a", empty_for=29))
    assert removed(early) == []
    assert early.requeue_at == NOW + timedelta(seconds=1)


def test_a_node_with_nothing_but_daemons_and_finished_pods_is_empty() -> None:
    assert removed(
        compute_for(claim("a", empty_for=60), pods=[pod("a", daemon=True), pod("a", phase="Succeeded")])
    ) == ["a"]


def test_a_node_with_a_pod_even_a_terminating_one_is_not_empty() -> None:
    assert removed(compute_for(claim("a", empty_for=60), pods=[pod("a")])) == []
    assert removed(compute_for(claim("a", empty_for=60), pods=[pod("a", deleted=True)])) == []
    assert workload_pods([pod("a", deleted=True)])
    assert not workload_pods([pod("a", daemon=True)])


def test_a_node_that_is_used_again_before_its_deletion_stays() -> None:
    (action,) = compute_for(claim("a", empty_for=60)).commands
    snapshot = Snapshot(
        taken_at=NOW,
        node_pools=(pool(),),
        node_claims=(claim("a", empty_for=60),),
        nodes=(node("a"),),
        pods=(pod("a"),),
    )
    assert validate(action, DisruptionState(snapshot=snapshot, now=NOW), BudgetTracker(snapshot, now=NOW))


def test_a_node_that_a_pending_pod_will_use_is_not_empty() -> None:
    assert removed(compute_for(claim("a", empty_for=60), nominated="a")) == []
    assert removed(compute_for(claim("a", empty_for=60), nominated="claim-a")) == []


def test_never_means_never() -> None:
    command = compute_for(claim("a", empty_for=10_000), of=pool(after="Never"))
    assert removed(command) == []
    assert command.requeue_at is None


def test_budgets_hold_and_blocked_nodes_are_reported() -> None:
    claims = [claim(name, empty_for=60) for name in "abcde"]
    command = compute_for(*claims, of=pool(budgets=[Budget(nodes="40%")]))
    assert removed(command) == ["a", "b"]
    assert [r.node for r in command.blocked] == ["c", "d", "e"]
    assert "budget" in command.blocked[0].message
    assert removed(compute_for(*claims, of=pool(budgets=[Budget(nodes="0", reasons=["Empty"])]))) == []
    assert len(removed(compute_for(*claims, of=pool(budgets=[Budget(nodes="0", reasons=["Drifted"])])))) == 5


def test_an_unreadable_budget_allows_nothing() -> None:
    assert removed(compute_for(claim("a", empty_for=60), of=pool(budgets=[Budget(nodes="many")]))) == []
    closed = Budget(nodes="0", schedule="whenever", duration="1h")
    assert removed(compute_for(claim("a", empty_for=60), of=pool(budgets=[closed]))) == []


def test_nodes_that_are_unready_or_leaving_count_against_the_budget() -> None:
    claims = (claim("a", empty_for=60), claim("b", empty_for=60))
    snapshot = Snapshot(
        taken_at=NOW,
        node_pools=(pool(budgets=[Budget(nodes="1")]),),
        node_claims=claims,
        nodes=(node("a"), node("b"), node("c", ready=False)),
    )
    assert removed(decide(snapshot)) == []


def test_do_not_disrupt_keeps_a_node() -> None:
    snapshot = Snapshot(
        taken_at=NOW,
        node_pools=(pool(),),
        node_claims=(claim("a", empty_for=60),),
        nodes=(node("a", annotations={names.DO_NOT_DISRUPT: "true"}),),
    )
    command = decide(snapshot)
    assert removed(command) == []
    assert names.DO_NOT_DISRUPT in command.blocked[0].message


def test_a_node_that_is_still_starting_is_not_a_candidate() -> None:
    assert removed(compute_for(claim("a", empty_for=60, initialized=False))) == []


def test_the_empty_condition_is_set_once_and_cleared_when_a_pod_comes() -> None:
    fresh = claim("a")
    snapshot = Snapshot(taken_at=NOW, node_pools=(pool(),), node_claims=(fresh,), nodes=(node("a"),))
    seen = empty_condition_changes(DisruptionState(snapshot=snapshot, now=NOW))
    assert [o.is_empty for o in seen] == [True]
    after = with_empty_condition(fresh, is_empty=True, now=NOW)
    snapshot = Snapshot(taken_at=NOW, node_pools=(pool(),), node_claims=(after,), nodes=(node("a"),))
    assert empty_condition_changes(DisruptionState(snapshot=snapshot, now=NOW)) == ()
    filled = Snapshot(taken_at=NOW, node_pools=(pool(),), node_claims=(after,), nodes=(node("a"),), pods=(pod("a"),))
    assert [o.is_empty for o in empty_condition_changes(DisruptionState(snapshot=filled, now=NOW))] == [False]
    again = with_empty_condition(
        with_empty_condition(after, is_empty=False, now=NOW), is_empty=True, now=NOW + timedelta(minutes=5)
    )
    assert decide(replace_claim(snapshot, again), now=NOW + timedelta(minutes=5)).commands == ()


def replace_claim(snapshot: Snapshot, new: NodeClaim) -> Snapshot:
    return Snapshot(
        taken_at=snapshot.taken_at,
        node_pools=snapshot.node_pools,
        node_claims=(with_fields(new),),
        nodes=snapshot.nodes,
    )
