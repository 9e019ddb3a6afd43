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
from shared.disruption.savings import NOTHING, Balanced, Deal, Span

if TYPE_CHECKING:
    from tests.unit.disruption.conftest import Cluster

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def deal(price: float, replacements: float, *, moving: float = 0.01, balanced: Balanced | None = None) -> Deal:
    span = Span(soon=1.0, later=4.0)
    return Deal(price=price, replacements=replacements, span=span, pods=3, moving=moving, balanced=balanced)


def test_a_replacement_that_is_hardly_cheaper_is_left_alone_whatever_it_moves() -> None:
    assert deal(1.0, 0.96, moving=0.0).value == NOTHING
    assert "less than 5% cheaper" in deal(1.0, 0.96).obstacle.message
    assert deal(1.0, 0.94, moving=0.0).value > NOTHING


def test_what_pays_back_soon_is_worth_more_than_anything_that_pays_back_later() -> None:
    soon = deal(0.05, 0.0, moving=0.04).value
    later = deal(10.0, 0.0, moving=12.0).value
    assert (soon.soon, later.soon) == (True, False)
    assert soon.usd == pytest.approx(0.01)
    assert later.usd == pytest.approx(28.0)
    assert soon > later > NOTHING


def test_what_never_pays_back_is_told_with_its_figures() -> None:
    one = deal(0.1, 0.0, moving=1.0)
    assert one.value == NOTHING
    for part in ("$0.1000/h", "4.0 h", "3 pods", "$1.0000"):
        assert part in one.obstacle.message
    assert one.obstacle.by == ""


def test_balanced_weighs_the_share_saved_against_the_share_moved() -> None:
    all_ = Balanced(price=10.0, moving=1.0)
    assert deal(1.0, 0.0, moving=0.19, balanced=all_).value > NOTHING
    refused = deal(1.0, 0.0, moving=0.21, balanced=all_)
    assert refused.value == NOTHING
    assert "Balanced" in refused.obstacle.message
    assert deal(1.0, 0.0, moving=0.21).value > NOTHING


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
    assert one.value == NOTHING or one.savings > 0
    assert deal(price, replacements, moving=moving + more).value <= one.value


@pytest.mark.parametrize(
    ("age", "quiet", "soon", "later"),
    [
        (MINUTE, MINUTE, 20 * MINUTE, 20 * MINUTE),
        (40 * MINUTE, 40 * MINUTE, 40 * MINUTE, 40 * MINUTE),
        (30 * HOUR, 2 * HOUR, savings.SOON, 2 * HOUR),
        (30 * HOUR, 30 * HOUR, savings.SOON, savings.LATER),
    ],
)
def test_a_saving_lasts_as_long_as_the_node_has_and_the_pool_has_bought_nothing(
    cluster: Cluster, age: timedelta, quiet: timedelta, soon: timedelta, later: timedelta
) -> None:
    cluster.node("n", 1, age=age)
    (candidate,) = candidates.every(cluster.view())
    span = savings.span(candidate, quiet=quiet, now=cluster.view().now)
    assert span.soon == pytest.approx(soon / HOUR)
    assert span.later == pytest.approx(later / HOUR)


def test_a_saving_lasts_no_longer_than_the_node_may_live(cluster: Cluster) -> None:
    cluster.node("n", 1, age=10 * HOUR, spec=NodeClaimSpec(expire_after="10h30m"))
    (candidate,) = candidates.every(cluster.view())
    span = savings.span(candidate, quiet=10 * HOUR, now=cluster.view().now)
    assert (span.soon, span.later) == (0.5, 0.5)


def test_replacements_are_no_sign_that_the_pool_needs_more(cluster: Cluster) -> None:
    cluster.node("old", 1, age=10 * HOUR)
    cluster.node("new", 1, age=MINUTE)
    assert cluster.view().quiet("default") == MINUTE
    new = cluster.claims[1]
    cluster.claims[1] = replace(new, metadata=replace(new.metadata, annotations={names.REPLACES: "1"}))
    assert cluster.view().quiet("default") == 10 * HOUR


def test_a_node_that_stays_because_nothing_pays_is_told_why_and_what_it_would_save(cluster: Cluster) -> None:
    cluster.node("dear", 1, age=MINUTE)
    for i in range(20):
        cluster.pod(f"p{i}", "dear", 45, annotations={"controller.kubernetes.io/pod-deletion-cost": str(2**28)})
    cluster.node("room", 1, age=MINUTE, annotations={names.DO_NOT_DISRUPT: "true"})
    found = consolidation.search(cluster.view(), cluster.slots(), lambda: False)
    assert found.action is None
    said = {r.node: r for r in found.refused}
    assert said["dear"].obstacle.by == ""
    assert "saves $" in said["dear"].message
    assert said["dear"].savings == pytest.approx(0.05)
    assert said["dear"].pods == 20
    assert said["room"].obstacle.by == "Node room"


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
    assert (found.action.nodes if found.action else ()) == goes
    if not goes:
        assert "Balanced" in {r.node: r.message for r in found.refused}["b"]
