"""Net savings: when they exceed the disruption cost, and the message when they don't."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.nodeclaim import NodeClaimSpec
from shared.api.nodepool import Budget
from shared.base.struct import with_fields
from shared.disruption import candidates, consolidation, savings
from shared.disruption.savings import NO_SAVINGS, BalancedTotals, ConsolidationOption, SavingsDuration
from shared.disruption.savings_evidence import SavingsEvidence
from tests.unit.disruption.conftest import NOW

if TYPE_CHECKING:
    from shared.disruption.disruption_state import DisruptionState
    from tests.unit.disruption.conftest import Cluster

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def deal(
    price: float, replacements: float, *, moving: float = 0.01, balanced: BalancedTotals | None = None
) -> ConsolidationOption:
    span = SavingsDuration(short_term=1.0, long_term=4.0)
    return ConsolidationOption(
        price=price,
        replacement_price=replacements,
        duration=span,
        pod_count=3,
        disruption_cost=moving,
        balanced_totals=balanced,
    )


def test_replacements_that_are_hardly_cheaper_have_no_net_savings() -> None:
    assert deal(1.0, 0.96, moving=0.0).net_savings == NO_SAVINGS
    assert "less than 5% cheaper" in deal(1.0, 0.96).blocker.message
    assert deal(1.0, 0.94, moving=0.0).net_savings > NO_SAVINGS


def test_short_term_savings_rank_above_long_term_ones() -> None:
    soon = deal(0.05, 0.0, moving=0.04).net_savings
    later = deal(10.0, 0.0, moving=12.0).net_savings
    assert (soon.short_term, later.short_term) == (True, False)
    assert soon.usd == pytest.approx(0.01)
    assert later.usd == pytest.approx(28.0)
    assert soon > later > NO_SAVINGS


def test_the_blocker_of_an_option_without_net_savings_has_its_figures() -> None:
    option = deal(0.1, 0.0, moving=1.0)
    assert option.net_savings == NO_SAVINGS
    for part in ("$0.1000/h", "4.0 h", "3 pods", "$1.0000"):
        assert part in option.blocker.message
    assert option.blocker.by == ""


def test_balanced_compares_the_share_of_savings_with_the_share_of_disruption_cost() -> None:
    all_ = BalancedTotals(price=10.0, disruption_cost=1.0)
    assert deal(1.0, 0.0, moving=0.19, balanced=all_).net_savings > NO_SAVINGS
    refused = deal(1.0, 0.0, moving=0.21, balanced=all_)
    assert refused.net_savings == NO_SAVINGS
    assert "Balanced" in refused.blocker.message
    assert deal(1.0, 0.0, moving=0.21).net_savings > NO_SAVINGS


@given(
    price=st.floats(0.01, 100),
    replacements=st.floats(0, 100),
    moving=st.floats(0, 10),
    more=st.floats(0, 10),
)
def test_net_savings_need_savings_and_never_rise_with_the_disruption_cost(
    price: float, replacements: float, moving: float, more: float
) -> None:
    option = deal(price, replacements, moving=moving)
    assert option.net_savings == NO_SAVINGS or option.savings > 0
    assert deal(price, replacements, moving=moving + more).net_savings <= option.net_savings


@pytest.mark.parametrize(
    ("age", "quiet", "soon", "later"),
    [
        (MINUTE, MINUTE, 20 * MINUTE, 20 * MINUTE),
        (40 * MINUTE, 40 * MINUTE, 40 * MINUTE, 40 * MINUTE),
        (30 * HOUR, 2 * HOUR, savings.SHORT_PAYBACK, 2 * HOUR),
        (30 * HOUR, 30 * HOUR, savings.SHORT_PAYBACK, savings.LONG_PAYBACK),
    ],
)
def test_the_savings_duration_follows_the_nodes_age_and_the_pools_last_launch(
    cluster: Cluster, age: timedelta, quiet: timedelta, soon: timedelta, later: timedelta
) -> None:
    cluster.node("n", 1, age=age)
    (candidate,) = candidates.all_candidates(cluster.state())
    span = savings.savings_duration(candidate, time_since_launch=quiet, now=cluster.state().now)
    assert span.short_term == pytest.approx(soon / HOUR)
    assert span.long_term == pytest.approx(later / HOUR)


def test_the_savings_duration_ends_when_the_node_expires(cluster: Cluster) -> None:
    cluster.node("n", 1, age=10 * HOUR, spec=NodeClaimSpec(expire_after="10h30m"))
    (candidate,) = candidates.all_candidates(cluster.state())
    span = savings.savings_duration(candidate, time_since_launch=10 * HOUR, now=cluster.state().now)
    assert (span.short_term, span.long_term) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("age", "evidence", "soon", "later"),
    [
        # Known to last: neither the node's age nor the pool's last launch matters.
        (40 * MINUTE, {"duration": 6 * HOUR}, 6 * HOUR, 6 * HOUR),
        (40 * MINUTE, {"duration": 7 * MINUTE}, 7 * MINUTE, 7 * MINUTE),
        # A node that was launched after the scale-in was needed despite it.
        (30 * MINUTE, {"duration": 6 * HOUR, "since": NOW - 35 * MINUTE}, 30 * MINUTE, 30 * MINUTE),
        # Earlier days only say how long savings last at most.
        (40 * MINUTE, {"duration": 15 * MINUTE, "is_limit": True}, 15 * MINUTE, 15 * MINUTE),
        (30 * HOUR, {"duration": 3 * HOUR, "is_limit": True}, savings.SHORT_PAYBACK, 3 * HOUR),
    ],
)
def test_evidence_decides_how_long_savings_last(
    cluster: Cluster, age: timedelta, evidence: dict[str, Any], soon: timedelta, later: timedelta
) -> None:
    cluster.node("n", 1, age=age)
    (candidate,) = candidates.all_candidates(cluster.state())
    span = savings.savings_duration(
        candidate,
        time_since_launch=30 * HOUR,
        now=NOW,
        evidence=SavingsEvidence(**{"since": NOW, "why": "", **evidence}),
    )
    assert span.short_term == pytest.approx(soon / HOUR)
    assert span.long_term == pytest.approx(later / HOUR)


def scaled_in(cluster: Cluster) -> DisruptionState:
    """Twelve nodes with a few pods each, half an hour old; the workload was scaled in just now."""
    cluster.disruption(budgets=[Budget(nodes="3")])
    for i in range(12):
        cluster.node(f"n{i:02}", 2, age=30 * MINUTE)
        for j in range(1 + i % 3):
            cluster.pod(f"p{i:02}-{j}", f"n{i:02}", 400)
    evidence = SavingsEvidence(duration=6 * HOUR, why="Deployment default/web scaled in from 50 to 15", since=NOW)
    return with_fields(cluster.state(), evidence={"default": evidence})


def test_a_scale_in_pays_for_moving_pods_that_the_nodes_age_does_not(cluster: Cluster) -> None:
    state = scaled_in(cluster)
    steps = iter(range(30))
    result = consolidation.search(state, cluster.budget_tracker(), lambda: next(steps, None) is None)
    assert result.command is not None
    assert len(result.command.nodes) == 3
    why = "Deployment default/web scaled in from 50 to 15, expected to last 6.0 h"
    assert result.command.message.endswith(why)
    by_age = consolidation.search(
        with_fields(state, evidence={}), cluster.budget_tracker(), lambda: next(steps, None) is None
    )
    assert by_age.net_savings.usd < result.net_savings.usd


def test_why_a_scale_in_is_not_enough_says_what_was_expected(cluster: Cluster) -> None:
    state = scaled_in(cluster)
    evidence = with_fields(state.evidence["default"], duration=MINUTE)
    steps = iter(range(30))
    result = consolidation.search(
        with_fields(state, evidence={"default": evidence}),
        cluster.budget_tracker(),
        lambda: next(steps, None) is None,
    )
    assert result.command is None
    expected = "for an expected 0.0 h (Deployment default/web scaled in from 50 to 15) is less than the disruption cost"
    assert any(expected in blocked.message for blocked in result.blocked)


def test_replacements_do_not_count_as_launches_of_the_pool(cluster: Cluster) -> None:
    cluster.node("old", 1, age=10 * HOUR)
    cluster.node("new", 1, age=MINUTE)
    assert cluster.state().time_since_launch("default") == MINUTE
    new = cluster.claims[1]
    cluster.claims[1] = with_fields(new, metadata=with_fields(new.metadata, annotations={names.REPLACES: "1"}))
    assert cluster.state().time_since_launch("default") == 10 * HOUR


def test_a_node_without_net_savings_is_reported_with_its_savings(cluster: Cluster) -> None:
    cluster.node("dear", 1, age=MINUTE)
    for i in range(20):
        cluster.pod(f"p{i}", "dear", 45, annotations={"controller.kubernetes.io/pod-deletion-cost": str(2**28)})
    cluster.node("room", 1, age=MINUTE, annotations={names.DO_NOT_DISRUPT: "true"})
    result = consolidation.search(cluster.state(), cluster.budget_tracker(), lambda: False)
    assert result.command is None
    blocked = {r.node: r for r in result.blocked}
    assert blocked["dear"].blocker.by == ""
    assert "saving $0.0500/h" in blocked["dear"].message
    assert blocked["dear"].savings == pytest.approx(0.05)
    assert blocked["dear"].pods == 20
    assert blocked["room"].blocker.by == "Node room"


@pytest.mark.parametrize(("policy", "goes"), [("WhenEmptyOrUnderutilized", ("b",)), ("Balanced", ())])
def test_pools_with_policy_balanced_are_consolidated_less(cluster: Cluster, policy: str, goes: tuple[str, ...]) -> None:
    cluster.disruption(consolidation_policy=policy)
    cluster.node("a", 8, spot=True, annotations={names.DO_NOT_DISRUPT: "true"})
    for i in range(4):
        cluster.pod(f"a{i}", "a", 1700)
    cluster.node("b", 4, spot=True)
    for i in range(20):
        cluster.pod(f"b{i}", "b", 50)
    result = consolidation.search(cluster.state(), cluster.budget_tracker(), lambda: False)
    assert (result.command.nodes if result.command else ()) == goes
    if not goes:
        assert "Balanced" in {r.node: r.message for r in result.blocked}["b"]
