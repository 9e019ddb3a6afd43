"""An explanation as a value: the reason in one sentence, then each question that was asked, and its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from cli import terminal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from rich.console import Console

    from cli.cluster.history import PastEvent
    from shared.decision_log import DecisionRecord

_SIGNS = {True: ("✓", terminal.GOOD), False: ("✗", terminal.BAD), None: ("·", terminal.QUIET)}
_LAST_WORDS = 5


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question. ``ok`` False: this is in the way; None: said, but nothing hangs on it."""

    what: str
    ok: bool | None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Questions that belong together, such as those that one NodePool was asked."""

    title: str
    checks: tuple[Check, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """``subject`` names the object, ``state`` says in a word or two how it is, ``reason`` why.

    ``nearest`` is what would change it, one way a line; ``said`` what was said of it before, newest first.
    """

    subject: str
    state: str
    reason: str
    criterion: str = ""
    nearest: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    said: tuple[PastEvent, ...] = ()

    def with_words(self, events: Iterable[PastEvent], decisions: Iterable[DecisionRecord] = ()) -> Explanation:
        """With the last words of events and the decision log."""
        from cli.cluster.history import PastEvent  # noqa: PLC0415 (a cycle otherwise)

        logged = [
            PastEvent(at=d.at, reason=f"{d.reason} {d.outcome}", message=d.why, by="decision log") for d in decisions
        ]
        said = sorted([*logged, *events], key=lambda s: s.at.timestamp() if s.at else 0.0, reverse=True)
        return replace(self, said=tuple(said))


def as_json(explanation: Explanation) -> dict[str, Any]:
    """As plain JSON values."""
    return {
        "object": explanation.subject,
        "state": explanation.state,
        "reason": explanation.reason,
        "criterion": explanation.criterion,
        "nearest": list(explanation.nearest),
        "checks": [
            {"about": s.title, "checks": [{"what": c.what, "ok": c.ok, "detail": c.detail} for c in s.checks]}
            for s in explanation.sections
        ],
        "said": [
            {"at": s.at.isoformat() if s.at else None, "reason": s.reason, "message": s.message, "by": s.by}
            for s in explanation.said
        ],
    }


def show(console: Console, explanation: Explanation, *, now: datetime, notes: Iterable[str] = ()) -> None:
    """Print it: the reason first."""
    console.print(Text.assemble((explanation.subject, "bold"), f" {explanation.state}"))
    if explanation.reason:
        console.print(_indented(Text(explanation.reason, style="bold"), 2))
    for line in explanation.nearest:
        console.print(_indented(Text.assemble(("→ ", terminal.GOOD), line), 2))
    for note in notes:
        console.print(Text(f"  note: {note}", style=terminal.QUIET))
    for section in explanation.sections:
        console.print()
        console.print(terminal.title(section.title))
        table = terminal.table("", "", "", indent=2)
        table.show_header = False
        for check in section.checks:
            sign, style = _SIGNS[check.ok]
            table.add_row(
                "",
                Text(sign, style=style),
                check.what,
                Text(check.detail, style="" if check.ok is False else terminal.QUIET),
            )
        console.print(table)
    if explanation.said:
        console.print()
        console.print(terminal.title("Said before"))
        table = terminal.table("", "", "", indent=2)
        table.show_header = False
        for said in explanation.said[:_LAST_WORDS]:
            when = f"{terminal.age(now - said.at)} ago" if said.at else ""
            table.add_row("", Text(when, style=terminal.QUIET), said.reason, said.message)
        console.print(table)


def _indented(text: Text, by: int) -> Padding:
    return Padding(text, (0, 0, 0, by), expand=False)
