"""When a saving is worth its moves, and what people are told when it isn't."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.api import labels as names
from shared.api.nodeclaim import NodeClaimSpec
from shared.disruption import candidates, consolidation, savings
from shared.disruption.savings import NO_SAVINGS, BalancedTotals, ConsolidationOption, SavingsDuration

if TYPE_CHECKING:
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


def test_a_replacement_that_is_hardly_cheaper_is_left_alone_whatever_it_moves() -> None:
    assert deal(1.0, 0.96, moving=0.0).net_savings == NO_SAVINGS
    assert "less than 5% cheaper" in deal(1.0, 0.96).blocker.message
    assert deal(1.0, 0.94, moving=0.0).net_savings > NO_SAVINGS


def test_what_pays_back_soon_is_worth_more_than_anything_that_pays_back_later() -> None:
    soon = deal(0.05, 0.0, moving=0.04).net_savings
    later = deal(10.0, 0.0, moving=12.0).net_savings
    assert (soon.short_term, later.short_term) == (True, False)
    assert soon.usd == pytest.approx(0.01)
    assert later.usd == pytest.approx(28.0)
    assert soon > later > NO_SAVINGS


def test_what_never_pays_back_is_told_with_its_figures() -> None:
    one = deal(0.1, 0.0, moving=1.0)
    assert one.net_savings == NO_SAVINGS
    for part in ("$0.1000/h", "4.0 h", "3 pods", "$1.0000"):
        assert part in one.blocker.message
    assert one.blocker.by == ""


def test_balanced_weighs_the_share_saved_against_the_share_moved() -> None:
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
def test_a_deal_is_worth_something_only_if_it_saves_and_never_more_for_moving_more(
    price: float, replacements: float, moving: float, more: float
) -> None:
    one = deal(price, replacements, moving=moving)
    assert one.net_savings == NO_SAVINGS or one.savings > 0
    assert deal(price, replacements, moving=moving + more).net_savings <= one.net_savings


@pytest.mark.parametrize(
    ("age", "quiet", "soon", "later"),
    [
        (MINUTE, MINUTE, 20 * MINUTE, 20 * MINUTE),
        (40 * MINUTE, 40 * MINUTE, 40 * MINUTE, 40 * MINUTE),
        (30 * HOUR, 2 * HOUR, savings.SHORT_PAYBACK, 2 * HOUR),
        (30 * HOUR, 30 * HOUR, savings.SHORT_PAYBACK, savings.LONG_PAYBACK),
    ],
)
def test_a_saving_lasts_as_long_as_the_node_has_and_the_pool_has_bought_nothing(
    cluster: Cluster, age: timedelta, quiet: timedelta, soon: timedelta, later: timedelta
) -> None:
    cluster.node("n", 1, age=age)
    (candidate,) = candidates.all_candidates(cluster.view())
    span = savings.savings_duration(candidate, quiet=quiet, now=cluster.view().now)
    assert span.short_term == pytest.approx(soon / HOUR)
    assert span.long_term == pytest.approx(later / HOUR)


def test_a_saving_lasts_no_longer_than_the_node_may_live(cluster: Cluster) -> None:
    cluster.node("n", 1, age=10 * HOUR, spec=NodeClaimSpec(expire_after="10h30m"))
    (candidate,) = candidates.all_candidates(cluster.view())
    span = savings.savings_duration(candidate, quiet=10 * HOUR, now=cluster.view().now)
    assert (span.short_term, span.long_term) == (0.5, 0.5)


def test_replacements_are_no_sign_that_the_pool_needs_more(cluster: Cluster) -> None:
    cluster.node("old", 1, age=10 * HOUR)
    cluster.node("new", 1, age=MINUTE)
    assert cluster.view().time_since_launch("default") == MINUTE
    new = cluster.claims[1]
    cluster.claims[1] = replace(new, metadata=replace(new.metadata, annotations={names.REPLACES: "1"}))
    assert cluster.view().time_since_launch("default") == 10 * HOUR


def test_a_node_that_stays_because_nothing_pays_is_told_why_and_what_it_would_save(cluster: Cluster) -> None:
    cluster.node("dear", 1, age=MINUTE)
    for i in range(20):
        cluster.pod(f"p{i}", "dear", 45, annotations={"controller.kubernetes.io/pod-deletion-cost": str(2**28)})
    cluster.node("room", 1, age=MINUTE, annotations={names.DO_NOT_DISRUPT: "true"})
    found = consolidation.search(cluster.view(), cluster.slots(), lambda: False)
    assert found.command is None
    said = {r.node: r for r in found.blocked}
    assert said["dear"].blocker.by == ""
    assert "saving $0.0500/h" in said["dear"].message
    assert said["dear"].savings == pytest.approx(0.05)
    assert said["dear"].pods == 20
    assert said["room"].blocker.by == "Node room"


@pytest.mark.parametrize(("policy", "goes"), [("WhenEmptyOrUnderutilized", ("b",)), ("Balanced", ())])
def test_pools_that_ask_for_balanced_give_up_less(cluster: Cluster, policy: str, goes: tuple[str, ...]) -> None:
    cluster.disruption(consolidation_policy=policy)
    cluster.node("a", 8, spot=True, annotations={names.DO_NOT_DISRUPT: "true"})
    for i in range(4):
        cluster.pod(f"a{i}", "a", 1700)
    cluster.node("b", 4, spot=True)
    for i in range(20):
        cluster.pod(f"b{i}", "b", 50)
    found = consolidation.search(cluster.view(), cluster.slots(), lambda: False)
    assert (found.command.nodes if found.command else ()) == goes
    if not goes:
        assert "Balanced" in {r.node: r.message for r in found.blocked}["b"]
