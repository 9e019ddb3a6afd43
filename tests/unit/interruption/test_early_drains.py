"""Which nodes are drained before EC2 interrupts them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.interruption import early_drains
from functions.interruption.rebalance_policy import ON_REBALANCE, is_ignored
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, Pod, PodSpec
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec
from shared.api.pause import Pause
from shared.base.struct import with_fields
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ALL = [Budget(nodes="100%")]


def true(type_: str) -> Condition:
    return Condition(type=type_, status="True", reason="x", last_transition_time=NOW)


def cluster(
    size: int,
    *,
    at_risk: Iterable[int] = (),
    maintenance: dict[int, datetime] | None = None,
    deleted: Iterable[int] = (),
    starting: Iterable[int] = (),
    policy: str | None = "replace",
    budgets: list[Budget] | None = None,
    protected: Iterable[int] = (),
) -> Snapshot:
    pool = NodePool(
        metadata=ObjectMeta(name="p", annotations={} if policy is None else {ON_REBALANCE: policy}),
        spec=NodePoolSpec(disruption=Disruption(budgets=ALL if budgets is None else budgets)),
    )
    claims, nodes, pods = [], [], []
    for i in range(size):
        annotations = {}
        if i in at_risk:
            annotations[early_drains.AT_RISK] = (NOW - timedelta(minutes=1)).isoformat()
        if maintenance and i in maintenance:
            annotations[early_drains.MAINTENANCE] = maintenance[i].isoformat()
        claims.append(
            NodeClaim(
                metadata=ObjectMeta(
                    name=f"c{i:03d}",
                    labels={"karpenter.sh/nodepool": "p"},
                    annotations=annotations,
                    deletion_timestamp=NOW if i in deleted else None,
                ),
                status=NodeClaimStatus(
                    node_name=f"n{i:03d}",
                    provider_id=f"aws:///z/i-{i:03d}",
                    conditions=[] if i in starting else [true("Initialized")],
                ),
            )
        )
        nodes.append(
            Node(
                metadata=ObjectMeta(
                    name=f"n{i:03d}",
                    labels={"karpenter.sh/nodepool": "p", "karpenter.sh/initialized": "true"},
                    creation_timestamp=NOW - timedelta(hours=1),
                ),
                spec=NodeSpec(provider_id=f"aws:///z/i-{i:03d}"),
                status=NodeStatus(conditions=[true("Ready")]),
            )
        )
        if i in protected:
            kept = {"karpenter.sh/do-not-disrupt": "true"}
            pods.append(
                Pod(
                    metadata=ObjectMeta(name=f"p{i}", namespace="d", annotations=kept),
                    spec=PodSpec(node_name=f"n{i:03d}"),
                )
            )
    return Snapshot(taken_at=NOW, node_claims=tuple(claims), nodes=tuple(nodes), node_pools=(pool,), pods=tuple(pods))


def plan(snapshot: Snapshot, *, now: datetime = NOW, confirmed: bool = True) -> early_drains.EarlyDrainPlan:
    """The plan where EC2 lists all announced maintenance, or none of it."""
    announced = {
        claim.status.provider_id.rpartition("/")[2]: datetime.fromisoformat(text)
        for claim in snapshot.node_claims
        if (text := claim.metadata.annotations.get(early_drains.MAINTENANCE))
    }
    return early_drains.plan_drains(snapshot, scheduled=announced if confirmed else {}, now=now)


def drained_nodes(snapshot: Snapshot, *, confirmed: bool = True) -> list[str]:
    return [d.node for d in plan(snapshot, confirmed=confirmed).drains]


def test_a_policy_may_replace_nodes_at_risk() -> None:
    assert drained_nodes(cluster(5, at_risk=[3], policy="replace")) == ["n003"]


@pytest.mark.parametrize("policy", [None, "", "nonsense", "ignore"])
def test_recommendations_are_ignored_by_default_and_where_the_policy_is_invalid(policy: str | None) -> None:
    snapshot = cluster(5, at_risk=[3], policy=policy)
    assert drained_nodes(snapshot) == []
    assert is_ignored(snapshot.node_claims[3], snapshot.node_pools)


def test_maintenance_does_not_depend_on_the_policy() -> None:
    assert drained_nodes(cluster(20, maintenance={2: NOW + timedelta(days=3)}, policy=None)) == ["n002"]


def test_a_policy_may_ignore_recommendations_or_cordon() -> None:
    assert plan(cluster(5, at_risk=[3], policy="ignore")) == early_drains.EarlyDrainPlan()
    planned = plan(cluster(5, at_risk=[3], policy="cordon"))
    assert planned.drains == ()
    assert [n.metadata.name for n in planned.cordon] == ["n003"]


@given(size=st.integers(1, 120), at_risk=st.sets(st.integers(0, 119)), leaving=st.sets(st.integers(0, 119)))
def test_at_most_a_tenth_of_a_pool_is_drained_at_a_time(size: int, at_risk: set[int], leaving: set[int]) -> None:
    snapshot = cluster(size, at_risk=at_risk | leaving, deleted=leaving)
    in_progress = len({i for i in leaving if i < size}) + len(drained_nodes(snapshot))
    most = max(1, size // 10)
    assert len(drained_nodes(snapshot)) <= max(0, most - len({i for i in leaving if i < size}))
    if {i for i in at_risk - leaving if i < size} and not leaving:
        assert 1 <= in_progress <= most


def test_a_wave_stops_while_replacements_do_not_start() -> None:
    assert drained_nodes(cluster(40, at_risk=range(40))) == ["n000", "n001", "n002", "n003"]
    assert drained_nodes(cluster(40, at_risk=range(30), starting=[36, 37, 38])) == ["n000"]
    assert drained_nodes(cluster(40, at_risk=range(30), starting=[36, 37, 38, 39])) == []


def test_disruption_budgets_apply_to_nodes_at_risk_and_to_maintenance() -> None:
    none = [Budget(nodes="0")]
    soon = {2: NOW + timedelta(days=3)}
    assert drained_nodes(cluster(20, at_risk=[1], maintenance=soon, budgets=none)) == []
    assert drained_nodes(cluster(20, at_risk=[1], maintenance=soon)) == ["n001", "n002"]


def test_maintenance_waits_for_disruption_budgets_until_it_is_imminent() -> None:
    closed = [Budget(nodes="0", schedule="0 8 * * *", duration="8h")]
    assert drained_nodes(cluster(20, maintenance={2: NOW + timedelta(hours=2)}, budgets=closed)) == []
    imminent = cluster(20, maintenance={2: NOW + timedelta(minutes=50)}, budgets=closed)
    drains = plan(imminent).drains
    assert [(d.node, d.forced, d.deadline) for d in drains] == [("n002", True, NOW + timedelta(minutes=50))]


def test_maintenance_that_has_started_sets_no_deadline() -> None:
    (planned,) = plan(cluster(20, maintenance={2: NOW - timedelta(hours=1)})).drains
    assert (planned.forced, planned.deadline) == (True, None)


@given(
    size=st.integers(1, 120),
    starts=st.dictionaries(st.integers(0, 119), st.integers(-(10**6), 10**6)),
    leaving=st.sets(st.integers(0, 119)),
    budget=st.sampled_from(["0", "1", "10%", "100%"]),
)
def test_maintenance_that_ec2_does_not_list_drains_a_share_as_budgets_allow_and_without_deadline(
    size: int, starts: dict[int, int], leaving: set[int], budget: str
) -> None:
    """Whatever date a message names, and however many nodes."""
    maintenance = {i: NOW + timedelta(minutes=minutes) for i, minutes in starts.items() if i < size}
    leaving = {i for i in leaving if i in maintenance}
    snapshot = cluster(size, maintenance=maintenance, deleted=leaving, budgets=[Budget(nodes=budget)])
    drains = plan(snapshot, confirmed=False).drains
    allowed = {"0": 0, "1": 1, "10%": -(-size // 10), "100%": size}[budget]
    assert len(drains) <= max(0, min(max(1, size // 10), allowed) - len(leaving))
    assert not any(d.forced or d.deadline or d.confirmed for d in drains)


def test_maintenance_that_ec2_does_not_list_spares_protected_and_paused_nodes() -> None:
    soon = {i: NOW + timedelta(seconds=90) for i in range(20)}
    assert drained_nodes(cluster(20, maintenance=soon, protected=range(19)), confirmed=False) == ["n019"]
    paused = with_fields(cluster(20, maintenance=soon), pause=Pause())
    assert drained_nodes(paused, confirmed=False) == []
    assert len(drained_nodes(paused)) == 20


def test_the_deadline_is_the_date_that_ec2_names() -> None:
    forged = cluster(20, maintenance={2: NOW + timedelta(seconds=90)})
    assert early_drains.plan_drains(forged, scheduled={"i-002": NOW + timedelta(days=14)}, now=NOW).drains[0] == (
        early_drains.EarlyDrain(
            claim=forged.node_claims[2], node="n002", deadline=NOW + timedelta(days=14), confirmed=True
        )
    )


def test_do_not_disrupt_is_honoured_except_for_imminent_maintenance() -> None:
    dates = {4: NOW + timedelta(minutes=30), 5: NOW + timedelta(days=1)}
    assert drained_nodes(cluster(60, at_risk=[3], maintenance=dates, protected=[3, 4, 5])) == ["n004"]


def test_a_recommendation_is_valid_for_twenty_minutes() -> None:
    snapshot = cluster(5, at_risk=[3])
    claim = snapshot.node_claims[3]
    assert early_drains.is_marked(claim, now=NOW + timedelta(minutes=18))
    assert not early_drains.is_marked(claim, now=NOW + timedelta(minutes=20))
    assert plan(snapshot, now=NOW + timedelta(minutes=20)) == early_drains.EarlyDrainPlan()


def test_nodes_in_a_zone_shifted_away_stay_until_their_maintenance_is_imminent() -> None:
    soon, later = NOW + timedelta(minutes=30), NOW + timedelta(days=3)
    snapshot = cluster(20, at_risk=[3], maintenance={1: soon, 2: later})
    for claim in snapshot.node_claims[:4]:
        claim.metadata.labels["topology.kubernetes.io/zone"] = "a"
    assert drained_nodes(snapshot) == ["n003", "n001", "n002"]
    assert drained_nodes(with_fields(snapshot, shifted_zones={"a": later})) == ["n001"]
    assert drained_nodes(with_fields(snapshot, shifted_zones={"b": later})) == ["n003", "n001", "n002"]
