"""How soon consolidation searches again in a cluster in which it found nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.disruption.no_savings import NoSavings, fingerprint
from shared.api import labels as names
from shared.base.struct import with_fields
from shared.disruption.consolidation import SearchResult, due_candidates, search
from shared.disruption.savings_evidence import SavingsEvidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.disruption.disruption_state import DisruptionState
    from tests.unit.disruption.conftest import Cluster

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def test_searches_of_an_unchanged_cluster_are_twice_as_far_apart_each_time_up_to_ten_minutes() -> None:
    searched = [START]
    while searched[-1] - START < timedelta(hours=1):
        searched.append(NoSavings(fingerprint="same", since=START, searched_at=searched[-1]).until)
    minutes = [(at - START) / MINUTE for at in searched]
    assert minutes == [0, 1, 2, 4, 8, 16, 26, 36, 46, 56, 66]


@pytest.mark.parametrize(("minutes", "until"), [(0, 1), (3, 3), (600, 10)])
def test_the_next_search_is_when_savings_are_possible_within_ten_minutes(minutes: int, until: int) -> None:
    no_savings = NoSavings(fingerprint="same", since=START, searched_at=START, next_savings_at=START + minutes * MINUTE)
    assert no_savings.until == START + until * MINUTE


nodes = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 4)),
        st.integers(0, 90),
        st.lists(st.sampled_from((10, 100, 500)), max_size=12),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes=nodes, share=st.floats(0, 0.999))
def test_nothing_is_found_before_the_time_at_which_savings_are_possible(
    make: Callable[[], Cluster], nodes: list[tuple[int, int, list[int]]], share: float
) -> None:
    cluster = make()
    for i, (cpu, age, pods) in enumerate(nodes):
        cluster.node(f"n{i}", cpu, age=age * MINUTE)
        room = cpu * 1000
        for k, request in enumerate(pods):
            if request <= room:
                room -= request
                cluster.pod(f"p{i}-{k}", f"n{i}", request)
    result = _search(cluster, cluster.state())
    if result.command is not None or result.next_savings_at is None:
        return
    state = cluster.state()
    assert result.next_savings_at >= state.now
    earlier = state.now + share * (result.next_savings_at - state.now)
    assert _search(cluster, with_fields(state, now=earlier)).command is None


def test_a_young_node_with_many_pods_is_consolidated_at_the_time_that_the_search_before_said(cluster: Cluster) -> None:
    cluster.node("full", 8, annotations={names.DO_NOT_DISRUPT: "true"})
    cluster.node("young", 1, age=20 * MINUTE)
    for i in range(10):
        cluster.pod(f"y{i}", "young", 20)
    state = cluster.state()
    first = _search(cluster, state)
    assert first.command is None
    assert first.next_savings_at is not None
    assert MINUTE < first.next_savings_at - state.now < timedelta(hours=5)
    command = _search(cluster, with_fields(state, now=first.next_savings_at + MINUTE / 60)).command
    assert command is not None
    assert command.nodes == ("young",)


def test_a_search_that_was_stopped_does_not_know_when_savings_are_possible(cluster: Cluster) -> None:
    for i in range(3):
        cluster.node(f"n{i}", 1)
        cluster.pod(f"p{i}", f"n{i}", 900)
    assert search(cluster.state(), cluster.budget_tracker(), lambda: True).next_savings_at is None


def test_a_node_that_becomes_due_or_unprotected_and_new_evidence_call_for_a_new_search(cluster: Cluster) -> None:
    cluster.disruption(consolidate_after="30s")
    cluster.node("due", 1)
    cluster.node("kept", 1, annotations={names.DO_NOT_DISRUPT: "true"})
    cluster.node("young", 1, age=MINUTE / 3)
    state = cluster.state()
    before = _fingerprint(cluster, state)
    assert _fingerprint(cluster, with_fields(state, now=state.now + MINUTE / 60)) == before
    assert _fingerprint(cluster, with_fields(state, now=state.now + MINUTE)) != before
    evidence = SavingsEvidence(duration=HOUR, why="Deployment web was scaled in", since=state.now)
    assert _fingerprint(cluster, with_fields(state, evidence={"default": evidence})) != before
    cluster.nodes[1].metadata.annotations.clear()
    assert _fingerprint(cluster, cluster.state()) != before


def _search(cluster: Cluster, state: DisruptionState) -> SearchResult:
    return search(state, cluster.budget_tracker(), lambda: False)


def _fingerprint(cluster: Cluster, state: DisruptionState) -> str:
    return fingerprint(state, due_candidates(state), cluster.budget_tracker())
