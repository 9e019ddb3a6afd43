"""A NodePool's windows are the only times in which its nodes are disrupted voluntarily."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shared.api.labels import DISRUPTION_WINDOWS
from shared.api.nodeclaim import NodeClaimSpec
from shared.api.nodepool import Budget
from shared.base.struct import with_fields
from shared.disruption import expiration
from shared.disruption.budgets import allowed_by_budgets, allowed_disruptions, budget_problems, is_frozen
from tests.unit.disruption.conftest import NOW  # noon UTC on a Friday

if TYPE_CHECKING:
    from datetime import datetime

    from shared.disruption.command import MethodResult
    from tests.unit.disruption.conftest import Cluster

OLD = NodeClaimSpec(expire_after="5h")


def windows(cluster: Cluster, text: str) -> None:
    metadata = with_fields(cluster.pool.metadata, annotations={DISRUPTION_WINDOWS: text})
    cluster.pool = with_fields(cluster.pool, metadata=metadata)


def expired(cluster: Cluster) -> MethodResult:
    return expiration.compute(cluster.state(), cluster.budget_tracker())


def allowed(cluster: Cluster, reason: str, *, now: datetime = NOW) -> bool:
    return allowed_disruptions(cluster.pool, cluster.snapshot, reason=reason, now=now) > 0


def test_outside_of_its_windows_a_node_stays_and_the_event_says_when_the_next_opens(cluster: Cluster) -> None:
    cluster.node("old", 1, spec=OLD)
    windows(cluster, "0 10 * * * for 10m; 0 13 * * * for 30m in Europe/Berlin")
    result = expired(cluster)
    assert result.commands == ()
    assert result.blocked[0].message == (
        "NodePool default is disrupted for reason Expired only in its windows (tenon.sh/disruption-windows): "
        "the next opens at 2026-05-02 10:00 UTC"
    )
    windows(cluster, "0 14 * * * for 1h in Europe/Berlin")  # noon UTC in May
    assert [c.nodes for c in expired(cluster).commands] == [("old",)]


def test_in_a_window_budgets_hold(cluster: Cluster) -> None:
    cluster.node("old", 1, spec=OLD)
    windows(cluster, "0 12 * * * for 1h")
    cluster.pool = with_fields(
        cluster.pool,
        spec=with_fields(
            cluster.pool.spec, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="0")])
        ),
    )
    assert expired(cluster).commands == ()
    assert "disruption budgets" in expired(cluster).blocked[0].message


def test_a_window_with_reasons_holds_those_alone(cluster: Cluster) -> None:
    """The wish of karpenter#2374: drift for ten minutes a day, empty nodes at any time."""
    cluster.node("n", 1)
    windows(cluster, "0 10 * * * for 10m reasons Drifted")
    ten = NOW - timedelta(hours=2)
    assert [allowed(cluster, "Drifted", now=t) for t in (ten, ten + timedelta(minutes=9))] == [True, True]
    assert not allowed(cluster, "Drifted", now=ten + timedelta(minutes=10))
    assert allowed(cluster, "Empty")
    assert not is_frozen(cluster.pool, now=NOW)


def test_several_windows_for_different_reasons(cluster: Cluster) -> None:
    cluster.node("n", 1)
    windows(cluster, "0 10 * * * for 10m reasons Drifted, Expired\n0 12 * * fri until 0 18 * * fri reasons Expired")
    assert [allowed(cluster, r) for r in ("Drifted", "Expired", "Underutilized")] == [False, True, True]


@pytest.mark.parametrize("reason", ["Unhealthy", "Interrupted"])
def test_repair_and_interruptions_are_not_held(cluster: Cluster, reason: str) -> None:
    cluster.node("n", 1)
    windows(cluster, "0 10 * * * for 10m")
    assert allowed(cluster, reason)
    assert allowed_by_budgets(cluster.pool, cluster.snapshot, reason="Drifted", now=NOW) == 1
    assert is_frozen(cluster.pool, now=NOW)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty; allowed is one window in each line"),
        ("saturdays", '"saturdays" is no window; allowed is'),
        ("0 10 * * * for 10m in Mars/Olympus", '"Mars/Olympus" is no time zone'),
        ("0 10 * * * for 10m reasons Bored", '"Bored" is no reason; allowed are Empty, Drifted, Expired'),
        ("0 10 * * * for 0s", "its duration must be longer than 0s"),
        ("0 10 31 2 * for 1h", "never comes"),
    ],
)
def test_a_value_that_cannot_be_read_stops_disruption_and_is_named(cluster: Cluster, text: str, problem: str) -> None:
    cluster.node("old", 1, spec=OLD)
    windows(cluster, text)
    (why,) = budget_problems(cluster.pool)
    assert why.startswith("metadata.annotations[tenon.sh/disruption-windows]: ")
    assert problem in why
    assert problem in expired(cluster).blocked[0].message
    assert expired(cluster).commands == ()


def test_an_expired_node_past_its_termination_grace_period_is_not_held(cluster: Cluster) -> None:
    cluster.node("old", 1, spec=NodeClaimSpec(expire_after="1h", termination_grace_period="1h"))
    windows(cluster, "0 10 * * * for 10m")
    assert [c.forced for c in expired(cluster).commands] == [True]
