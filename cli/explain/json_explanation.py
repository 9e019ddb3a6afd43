"""The output of ``tenon explain --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cli.json_output import Output, Time, moment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.explain.explanation import Explanation


class CheckResult(Output, frozen=True, kw_only=True):
    """A check. ``ok`` false: it failed; null: information only."""

    name: str = msgspec.field(name="what")
    ok: bool | None
    detail: str


class CheckedSection(Output, frozen=True, kw_only=True):
    """The checks of one subject, such as a NodePool."""

    about: str
    checks: list[CheckResult]


class PastMessage(Output, frozen=True, kw_only=True):
    """An event, or a row of the decision log."""

    at: Time | None
    reason: str
    message: str
    by: str


class ExplanationOutput(Output, frozen=True, kw_only=True):
    """The object, its state, and why. ``nearest`` are changes that would schedule the pod; ``said`` is newest first.

    ``notes`` say what of the explanation isn't known, or made up.
    """

    subject: str = msgspec.field(name="object")
    state: str
    reason: str
    criterion: str
    nearest: list[str]
    notes: list[str]
    checks: list[CheckedSection]
    history: list[PastMessage] = msgspec.field(name="said")


def output(explanation: Explanation, notes: Iterable[str] = ()) -> ExplanationOutput:
    """The explanation with all checks and past events."""
    return ExplanationOutput(
        subject=explanation.subject,
        state=explanation.state,
        reason=explanation.reason,
        criterion=explanation.criterion,
        nearest=list(explanation.nearest),
        notes=list(notes),
        checks=[
            CheckedSection(about=s.title, checks=[CheckResult(name=c.name, ok=c.ok, detail=c.detail) for c in s.checks])
            for s in explanation.sections
        ],
        history=[
            PastMessage(at=moment(e.at) if e.at else None, reason=e.reason, message=e.message, by=e.by)
            for e in explanation.history
        ],
    )
