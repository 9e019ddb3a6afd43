"""An explanation: the reason in one sentence, then every check with its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from cli import terminal
from cli.cluster.history import PastEvent
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table

    from shared.base.decision_log import DecisionRecord
    from shared.snapshot import InvalidObject

_SIGNS = {True: ("✓", terminal.GOOD), False: ("✗", terminal.BAD), None: ("·", terminal.QUIET)}
_MAX_PAST_EVENTS = 5


class Check(Struct, kw_only=True):
    """One check. ``ok`` False: it failed; None: information only."""

    name: str
    ok: bool | None
    detail: str = ""


class Section(Struct, kw_only=True):
    """Checks that belong together, such as those of one NodePool."""

    title: str
    checks: tuple[Check, ...]


class Explanation(Struct, kw_only=True):
    """``subject`` names the object, ``state`` completes a sentence about it, ``reason`` says why.

    ``criterion`` is the kind of reason. ``nearest`` are changes that would schedule the pod, one a line. ``history``
    are past events and decisions, newest first.
    """

    subject: str
    state: str
    reason: str
    criterion: str = ""
    nearest: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    history: tuple[PastEvent, ...] = ()

    def with_history(self, events: Iterable[PastEvent], decisions: Iterable[DecisionRecord] = ()) -> Explanation:
        """The same with past events and the decision log's rows, newest first."""
        logged = [
            PastEvent(at=d.at, reason=f"{d.reason} {d.outcome}", message=d.why, by="decision log") for d in decisions
        ]
        history = sorted([*logged, *events], key=lambda e: e.at.timestamp() if e.at else 0.0, reverse=True)
        return with_fields(self, history=tuple(history))


def explain_invalid(invalid: InvalidObject, events: Iterable[PastEvent]) -> Explanation:
    """Why an object can't be used: each problem with its field."""
    problems = [problem.partition(": ") for problem in invalid.problems]
    checks = tuple(Check(name=field, ok=False, detail=message) for field, _, message in problems)
    return Explanation(
        subject=str(invalid.ref),
        state="is invalid",
        reason=invalid.problems[0],
        criterion="invalid",
        sections=(Section(title="Validation", checks=checks),),
    ).with_history(events)


def show(console: Console, explanation: Explanation, *, now: datetime, notes: Iterable[str] = ()) -> None:
    """Print the explanation, the reason first."""
    console.print(Text.assemble((explanation.subject, "bold"), f" {explanation.state}"))
    if explanation.reason:
        console.print(_indented(Text(explanation.reason, style="bold")))
    for line in explanation.nearest:
        console.print(_indented(Text.assemble(("→ ", terminal.GOOD), line)))
    for note in notes:
        console.print(Text(f"  note: {note}", style=terminal.QUIET))
    for section in explanation.sections:
        _show_section(console, section)
    if explanation.history:
        _show_history(console, explanation.history, now)


def _show_section(console: Console, section: Section) -> None:
    table = _headless_table()
    for check in section.checks:
        sign, style = _SIGNS[check.ok]
        detail = Text(check.detail, style="" if check.ok is False else terminal.QUIET)
        table.add_row("", Text(sign, style=style), check.name, detail)
    console.print()
    console.print(terminal.title(section.title))
    console.print(table)


def _show_history(console: Console, history: Sequence[PastEvent], now: datetime) -> None:
    table = _headless_table()
    for event in history[:_MAX_PAST_EVENTS]:
        when = f"{terminal.age(now - event.at)} ago" if event.at else ""
        table.add_row("", Text(when, style=terminal.QUIET), event.reason, event.message)
    console.print()
    console.print(terminal.title("Events and decisions"))
    console.print(table)


def _headless_table() -> Table:
    table = terminal.table("", "", "", indent=2)
    table.show_header = False
    table.columns[-1].no_wrap = False
    return table


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)
