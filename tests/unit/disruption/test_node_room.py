"""Which pods are evicted so that a DaemonSet's pod or a resized pod has room on its node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.api.containers import Container, ContainerStatus, ResourceRequirements
from shared.api.kubernetes import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeStatus,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
)
from shared.api.meta import Condition, LabelSelector, ObjectMeta, OwnerReference, RawQuantities
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
from shared.api.pods import requests
from shared.base.struct import with_fields
from shared.disruption.node_room import RoomPlan, node_blocker, plan_room, waiting_node
from shared.disruption.pod_disruption_budgets import PodDisruptionBudgets
from shared.disruption.room_record import ANNOTATION, RoomRecord, encoded, room_record

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
REPLICA_SET = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="web", controller=True)
DAEMON_SET = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="agent", uid="agent", controller=True)
DO_NOT_DISRUPT = {"karpenter.sh/do-not-disrupt": "true"}
NODE = Node(metadata=ObjectMeta(name="n"), status=NodeStatus(allocatable={"cpu": "4", "memory": "16Gi", "pods": "10"}))


def pod(
    name: str,
    cpu: int = 1000,
    *,
    owner: OwnerReference | None = REPLICA_SET,
    annotations: dict[str, str] | None = None,
    age: timedelta = HOUR,
    deleted: bool = False,
    priority: int = 0,
    app: str = "web",
    status: PodStatus | None = None,
    **spec: Any,
) -> Pod:
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": f"{cpu}m"}))
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            labels={"app": app},
            annotations=annotations or {},
            owner_references=[owner] if owner is not None else [],
            creation_timestamp=NOW - age,
            deletion_timestamp=NOW if deleted else None,
        ),
        spec=PodSpec(**{"node_name": "n", "containers": [container], "priority": priority, **spec}),
        status=status or PodStatus(phase="Running"),
    )


def daemon(
    cpu: int,
    *,
    name: str = "agent",
    message: str = "1 Insufficient cpu",
    node: str = "n",
    **fields: Any,
) -> Pod:
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])
    selector = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[requirement])])
    unschedulable = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return pod(
        name,
        cpu,
        owner=DAEMON_SET,
        node_name="",
        affinity=Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)),
        status=PodStatus(conditions=[unschedulable]),
        **fields,
    )


def resized(name: str, *, before: int, after: int, reason: str = "Deferred", **fields: Any) -> Pod:
    """A running pod whose resize the kubelet hasn't accepted."""
    granted: RawQuantities = {"cpu": f"{before}m"}
    status = ContainerStatus(name="c", allocated_resources=granted, resources=ResourceRequirements(requests=granted))
    pending = Condition(type="PodResizePending", status="True", reason=reason)
    return pod(
        name, after, status=PodStatus(phase="Running", conditions=[pending], container_statuses=[status]), **fields
    )


def pod_disruption_budget(allowed: int, *, app: str = "web") -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=app, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def plan(*pods: Pod, budgets: tuple[PodDisruptionBudget, ...] = (), **fields: Any) -> RoomPlan:
    record = fields.pop("record", RoomRecord())
    return plan_room(NODE, pods, PodDisruptionBudgets(budgets), record, now=NOW, **fields)


def evicted(*pods: Pod, **fields: Any) -> list[str]:
    return [p.metadata.name for p in plan(*pods, **fields).evict]


def four() -> list[Pod]:
    return [pod(f"web-{i}") for i in range(4)]


def test_one_pod_goes_for_a_daemon_that_one_pod_makes_room_for() -> None:
    assert len(evicted(*four(), daemon(500))) == 1
    assert len(evicted(*four(), daemon(1500))) == 2
    assert evicted(*four()[:3], daemon(500)) == []


def test_a_pod_that_kube_scheduler_keeps_away_for_another_reason_gets_no_room() -> None:
    assert evicted(*four(), daemon(500, message="1 node(s) had untolerated taint(s)")) == []
    assert evicted(*four(), daemon(500, node="m")) == []
    assert evicted(*four(), daemon(500, annotations={"tenon.sh/make-room": "false"})) == []


def test_a_daemon_that_kube_scheduler_preempts_for_gets_no_more() -> None:
    waiting = daemon(500)
    assert waiting_node(waiting) == "n"
    preempting = with_fields(waiting, status=with_fields(waiting.status, nominated_node_name="n"))
    assert waiting_node(preempting) == ""
    assert evicted(*four()[:3], preempting, daemon(1000, name="logs")) == ["web-0"]


def test_terminating_pods_are_gone() -> None:
    assert evicted(*four()[:3], pod("web-3", deleted=True), daemon(500)) == []


def test_protected_pods_stay() -> None:
    stay = [
        pod("a", annotations=DO_NOT_DISRUPT),
        pod("b", owner=None),
        pod("c", owner=DAEMON_SET),
        pod("d", annotations={"kubernetes.io/config.mirror": "x"}),
    ]
    result = plan(*stay, daemon(500))
    assert result.evict == ()
    ((_, why),) = result.blocked
    assert why == (
        "node n lacks cpu 500m for it: none of its pods is movable, "
        "and pod default/a has annotation karpenter.sh/do-not-disrupt (and 1 more)"
    )


def test_pods_of_higher_priority_stay() -> None:
    important = [pod(f"web-{i}", priority=10) for i in range(3)]
    assert evicted(*important, pod("batch", priority=5), daemon(500, priority=5)) == ["batch"]
    assert evicted(*important, pod("batch", priority=5), daemon(500, priority=4)) == []


def test_the_cheapest_to_disrupt_goes() -> None:
    cheap = pod("cheap", annotations={"controller.kubernetes.io/pod-deletion-cost": "-100000000"})
    assert evicted(*four()[:3], cheap, daemon(500)) == ["cheap"]
    assert evicted(*four()[:2], pod("large", 1500), pod("small", 500), daemon(500)) == ["small"]


def test_pods_that_may_just_have_been_evicted_elsewhere_go_last() -> None:
    young = [pod(f"young-{i}", 500, age=5 * MINUTE) for i in range(2)]
    assert evicted(*four()[:3], *young, daemon(500)) == ["web-0"]
    assert evicted(*(pod(f"a-{i}", annotations=DO_NOT_DISRUPT) for i in range(3)), *young, daemon(500)) == ["young-0"]


def test_a_budget_allows_so_many_evictions() -> None:
    assert evicted(*four(), daemon(1500), budgets=(pod_disruption_budget(1),)) == []
    assert len(evicted(*four(), daemon(1500), budgets=(pod_disruption_budget(2),))) == 2
    assert "db" in evicted(*four()[:3], pod("db", app="db"), daemon(1500), budgets=(pod_disruption_budget(1),))
    two = [daemon(1000), daemon(1000, name="logs")]
    result = plan(*four(), *two, budgets=(pod_disruption_budget(1),))
    assert len(result.evict) == len(result.served) == len(result.blocked) == 1


def test_the_most_important_daemon_is_served_first() -> None:
    stay = [pod(f"stay-{i}", annotations=DO_NOT_DISRUPT) for i in range(3)]
    result = plan(*stay, pod("web"), daemon(800, name="a"), daemon(800, name="b", priority=7))
    assert [p.metadata.name for p in result.served] == ["b"]
    assert [p.metadata.name for p, _ in result.blocked] == ["a"]


def test_room_is_made_for_a_deferred_resize() -> None:
    assert evicted(*four()[:3], resized("grown", before=1000, after=1500)) == ["web-0"]
    assert evicted(*four()[:3], resized("grown", before=1000, after=1500, reason="Infeasible")) == []


def test_of_pods_that_all_grow_some_leave_for_the_others() -> None:
    grown = [resized(f"grown-{i}", before=1000, after=2000) for i in range(4)]
    result = plan(*grown)
    assert len(result.evict) == 2
    assert not {p.key for p in result.served} & {p.key for p in result.evict}


def test_three_attempts_are_enough() -> None:
    record = RoomRecord()
    for minute in (9, 5, 1):
        assert len(evicted(*four(), daemon(500), record=record)) == 1
        record = record.with_attempt(["agent"], now=NOW - minute * MINUTE)
    assert evicted(*four(), daemon(500), record=record) == []
    assert len(evicted(*four(), daemon(500, name="logs"), record=record)) == 1
    assert not record.is_exhausted("agent", now=NOW + 2 * MINUTE)


def test_the_record_survives_its_annotation() -> None:
    record = RoomRecord(cordoned_since=NOW).with_attempt(["agent"], now=NOW)
    assert room_record({ANNOTATION: encoded(record) or ""}) == record
    assert encoded(RoomRecord()) is None
    for text in ("", "[]", '{"attempts": 1}', '{"cordoned_since": "2026-05-01T12:00:00"}'):
        assert room_record({ANNOTATION: text}) == RoomRecord()


def test_a_node_that_is_not_to_be_disrupted_and_a_freeze_window_block() -> None:
    claim = NodeClaim(metadata=ObjectMeta(name="c"))

    def pool(*budgets: Budget) -> NodePool:
        return NodePool(
            metadata=ObjectMeta(name="default"), spec=NodePoolSpec(disruption=Disruption(budgets=list(budgets)))
        )

    allowing = pool(Budget(nodes="10%"), Budget(nodes="0", reasons=["Drifted"]))
    assert node_blocker(NODE, claim, allowing, now=NOW) == ""
    frozen = pool(Budget(nodes="10%"), Budget(nodes="0", schedule="0 9 * * *", duration="8h"))
    assert "allow no disruption now" in node_blocker(NODE, claim, frozen, now=NOW)
    assert node_blocker(NODE, claim, frozen, now=NOW + 8 * HOUR) == ""
    kept = with_fields(NODE, metadata=with_fields(NODE.metadata, annotations=DO_NOT_DISRUPT))
    assert node_blocker(kept, claim, allowing, now=NOW) == "Node n has annotation karpenter.sh/do-not-disrupt"
    result = plan(*four(), daemon(500), blocker="it is frozen")
    assert (result.evict, [why for _, why in result.blocked]) == ((), ["node n lacks cpu 500m for it: it is frozen"])


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[Pod], int]:
    pods = [
        pod(
            f"web-{i}",
            draw(st.sampled_from([100, 300, 500, 1000])),
            owner=draw(st.sampled_from([REPLICA_SET, REPLICA_SET, DAEMON_SET, None])),
            annotations=draw(st.sampled_from([{}, {}, DO_NOT_DISRUPT])),
            priority=draw(st.sampled_from([0, 0, 5, 9])),
            app=draw(st.sampled_from(["web", "db", "free"])),
            age=draw(st.sampled_from([MINUTE, HOUR])),
            deleted=draw(st.booleans()),
        )
        for i in range(draw(st.integers(0, 9)))
    ]
    grown = [
        resized(f"grown-{i}", before=300, after=draw(st.sampled_from([600, 1500])))
        for i in range(draw(st.integers(0, 2)))
    ]
    daemons = [
        daemon(draw(st.sampled_from([100, 900, 2500])), name=f"agent-{i}", priority=draw(st.sampled_from([0, 5])))
        for i in range(draw(st.integers(0, 2)))
    ]
    return [*pods, *grown, *daemons], draw(st.integers(0, 3))


@given(nodes())
def test_room_is_made_within_all_rules_or_nothing_is_evicted(case: tuple[list[Pod], int]) -> None:
    pods, allowed = case
    budgets = (pod_disruption_budget(allowed), pod_disruption_budget(1, app="db"))
    result = plan(*pods, budgets=budgets)
    gone = {p.key for p in result.evict}
    assert bool(gone) == bool(result.served)
    for p in result.evict:
        assert p.metadata.owner_references == [REPLICA_SET]
        assert p.metadata.annotations == {}
        assert p.metadata.deletion_timestamp is None
        assert (p.spec.priority or 0) <= max(s.spec.priority or 0 for s in result.served)
    assert sum(p.metadata.labels["app"] == "web" for p in result.evict) <= allowed
    assert sum(p.metadata.labels["app"] == "db" for p in result.evict) <= 1
    if result.served:
        remaining = [
            p for p in pods if p.key not in gone and p.spec.node_name and p.metadata.deletion_timestamp is None
        ]
        counted = [*remaining, *(p for p in result.served if not p.spec.node_name)]
        blocked = {p.key for p, _ in result.blocked}
        taken = sum(requests(p)["cpu"] for p in counted if p.key not in blocked)
        assert taken <= 4000
        assert not gone & {p.key for p in result.served}
