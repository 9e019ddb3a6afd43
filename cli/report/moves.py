"""What moved pods have saved, and what more moves would have: a cluster's own point and the greedy one.

A greedy autoscaler removes whatever is cheaper now. Tenon leaves a node if its savings, for as long as they last, are
less than what moving its pods costs, and writes that to the decision log. So the log says what greedy would have done
in addition: the pods of those nodes, and at most their savings until the next decision about the node.
"""

from __future__ import annotations

import html
from collections import defaultdict
from typing import TYPE_CHECKING

from shared.base.decision_log import REFUSED, REPEAT_INTERVAL, TAKEN, UNDONE
from shared.base.plurals import plural
from shared.base.struct import WireStruct
from shared.disruption.command import UNDERUTILIZED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.report.recording import RecordedDecision, Recording

_REPEATED = REPEAT_INTERVAL.total_seconds()
_LATE = 300.0
"""Seconds by which the next row of one refused removal may be late."""
_BAR_PERCENT = 60
"""The width of the longest bar, in percent; its label is next to it."""


class RecordedMoves(WireStruct, kw_only=True, rename="camel"):
    """Consolidation's ``commands`` moved ``moved`` pods.

    It left nodes with ``refused`` pods more, whose removal would have saved at most ``refused_savings``, USD in total.
    """

    commands: int
    moved: int
    refused: int
    refused_savings: float


def recorded_moves(recording: Recording) -> RecordedMoves:
    """The moves of a recording, by its decisions."""
    commands = list(_commands(recording.decisions))
    refused_moves = list(_refused_moves(recording.decisions, recording.end))
    return RecordedMoves(
        commands=len(commands),
        moved=sum(commands),
        refused=sum(pods for pods, _ in refused_moves),
        refused_savings=round(sum(usd for _, usd in refused_moves), 4),
    )


def _commands(decisions: Sequence[RecordedDecision]) -> Iterator[int]:
    """The pods of each command: it has a row for each of its nodes, and no row if it was rolled back."""
    undone = {d.node: d.at for d in decisions if d.outcome == UNDONE}
    rows: dict[tuple[float, str, int, int], int] = defaultdict(int)
    for d in decisions:
        is_move = d.outcome == TAKEN and d.reason == UNDERUTILIZED and d.pods and d.nodes
        if is_move and undone.get(d.node, -1.0) < d.at:
            rows[d.at, d.why, d.pods, d.nodes] += 1
    for (_, _, pods, nodes), count in rows.items():
        yield from [pods] * -(-count // nodes)


def _refused_moves(decisions: Sequence[RecordedDecision], end: float) -> Iterator[tuple[int, float]]:
    """Pods and USD of each refused removal that costs alone forbade; one that is repeated has pods once."""
    by_node: dict[str, list[RecordedDecision]] = defaultdict(list)
    for d in sorted(decisions, key=lambda d: d.at):
        by_node[d.node].append(d)
    for rows in by_node.values():
        is_repeated = False
        for row, until in zip(rows, [*(later.at for later in rows[1:]), end], strict=True):
            savings = 0.0 if row.blocked_by else row.savings or 0.0
            is_refused = row.outcome == REFUSED and row.reason == UNDERUTILIZED and savings > 0
            if is_refused:
                hours = max(0.0, min(until - row.at, _REPEATED)) / 3600
                yield 0 if is_repeated else row.pods, savings * hours
            is_repeated = is_refused and until - row.at <= _REPEATED + _LATE


def section(recording: Recording) -> str:
    """The page's section; nothing without a decision about moves."""
    moves = recorded_moves(recording)
    if not moves.commands and not moves.refused:
        return ""
    widest = max(moves.moved, moves.refused)
    bars = (
        ("realised", moves.moved, f"{plural(moves.moved, 'pod')} moved"),
        ("bought", moves.refused, f"{plural(moves.refused, 'pod')} more that a greedy autoscaler would have moved"),
    )
    lanes = "".join(
        f'<div class="bar"><span class="{name}" style="width:{_BAR_PERCENT * pods / max(1, widest):.2f}%"></span>'
        f"<i>{html.escape(label)}</i></div>"
        for name, pods, label in bars
    )
    return (
        '<section aria-labelledby="moves"><h2 id="moves">Moved pods</h2>'
        f'<p class="quiet">{html.escape(summary(moves))}</p><div class="launches"><div>{lanes}</div></div></section>'
    )


def summary(moves: RecordedMoves) -> str:
    """What the figures say, for users."""
    did = f"Consolidation moved {plural(moves.moved, 'pod')} in {plural(moves.commands, 'command')}."
    if not moves.refused:
        return f"{did} No other move would have cost more than it saves."
    return (
        f"{did} Moves of {moves.refused} more would have cost more than they save: at most "
        f"${moves.refused_savings:,.2f}, by the decision log."
    )
