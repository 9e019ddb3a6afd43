"""A report's moved pods, and what a greedy autoscaler would have moved in addition, by the decision log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.report.moves import RecordedMoves, recorded_moves, section
from cli.report.recording import RecordedDecision, Recording

HOUR = 3600.0


def taken(at: float, node: str, *, pods: int, nodes: int = 1, reason: str = "Underutilized") -> RecordedDecision:
    return RecordedDecision(
        at=at, node=node, outcome="taken", reason=reason, why="cheaper", savings=0.1, pods=pods, nodes=nodes
    )


def refused(
    at: float, node: str, *, pods: int = 4, savings: float | None = 0.12, blocked_by: str = ""
) -> RecordedDecision:
    return RecordedDecision(
        at=at,
        node=node,
        outcome="refused",
        reason="Underutilized",
        why="the disruption cost is more",
        savings=savings,
        pods=pods,
        nodes=1,
        blocked_by=blocked_by,
    )


def moves(*decisions: RecordedDecision, end: float = 10 * HOUR) -> RecordedMoves:
    return recorded_moves(
        Recording(title="run", start=datetime(2026, 5, 1, tzinfo=UTC), end=end, decisions=list(decisions))
    )


def test_the_pods_of_a_command_count_once_though_each_of_its_nodes_has_a_row() -> None:
    figures = moves(*(taken(60.0, node, pods=7, nodes=3) for node in "abc"), taken(60.0, "d", pods=2))
    assert (figures.commands, figures.moved) == (2, 9)


def test_removals_for_other_reasons_and_empty_nodes_move_no_pods_to_save() -> None:
    assert moves(taken(60.0, "a", pods=5, reason="Drifted"), taken(60.0, "b", pods=0)).commands == 0


def test_a_command_that_was_rolled_back_moved_nothing() -> None:
    undone = RecordedDecision(at=90.0, node="a", outcome="undone", reason="Underutilized", why="no capacity")
    assert moves(taken(60.0, "a", pods=5), undone).moved == 0
    assert moves(taken(60.0, "a", pods=5), undone, taken(120.0, "a", pods=6)).moved == 6


@pytest.mark.parametrize(
    ("decisions", "pods", "usd"),
    [
        ([refused(0.0, "a")], 4, 0.12),  # until it would have been written again
        ([refused(at * HOUR, "a") for at in range(3)], 4, 0.36),  # one, written again each hour
        ([refused(0.0, "a"), refused(5 * HOUR, "a")], 8, 0.24),  # in between, nothing was refused
        ([refused(0.0, "a"), taken(HOUR / 2, "a", pods=3)], 4, 0.06),
        ([refused(0.0, "a", blocked_by="PodDisruptionBudget default/web")], 0, 0.0),  # greedy couldn't either
        ([refused(0.0, "a", savings=None), refused(0.0, "b", savings=-0.1)], 0, 0.0),
        ([refused(9.5 * HOUR, "a")], 4, 0.06),  # until the end
    ],
)
def test_refused_moves_count_the_pods_once_and_the_savings_for_as_long_as_they_are_refused(
    decisions: list[RecordedDecision], pods: int, usd: float
) -> None:
    figures = moves(*decisions)
    assert figures.refused == pods
    assert figures.refused_savings == pytest.approx(usd)


def test_the_section_shows_both_and_is_left_out_without_any() -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    assert section(Recording(title="run", start=start, end=HOUR)) == ""
    decisions = [taken(60.0, "a", pods=7), refused(70.0, "b", pods=14, savings=2.0)]
    text = section(Recording(title="run", start=start, end=2 * HOUR, decisions=decisions))
    assert "Consolidation moved 7 pods in 1 command." in text
    assert "Moves of 14 more would have cost more than they save: at most $2.00, by the decision log." in text
    assert "width:30.00%" in text
    assert "width:60.00%" in text
