"""The output of ``tenon report --json``: which page was written, and the figures of what namespaces cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.json_output import Output
from cli.report.costs import RecordedCosts
from cli.report.moves import RecordedMoves, recorded_moves

if TYPE_CHECKING:
    from pathlib import Path

    from cli.report.recording import Recording


class ReportOutput(Output, frozen=True, kw_only=True):
    """The page, the numbers of nodes and decisions that it shows, and what namespaces cost; null of a demo's run.

    ``moves`` are the pods that consolidation moved, and those that a greedy autoscaler would have moved in addition.
    """

    page: str
    title: str
    nodes: int
    decisions: int
    costs: RecordedCosts | None
    moves: RecordedMoves


def output(recording: Recording, page: Path) -> ReportOutput:
    """The output for the page of this recording."""
    return ReportOutput(
        page=str(page),
        title=recording.title,
        nodes=len(recording.spans),
        decisions=len(recording.decisions),
        costs=recording.costs,
        moves=recorded_moves(recording),
    )
