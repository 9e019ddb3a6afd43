"""The page of events. Their reasons are found in the code that records or creates them.

A reason is a literal in the call that records it, or ``EventReason("…")`` elsewhere. A call with neither is an error
here, unless its reasons are created elsewhere.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from docs.descriptions import EVENTS
from docs.markdown import complete, table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
_REASON_ARGUMENT = {"record": 2, "delete_nodeclaim": 1, "NotFoundError": 0, "EventReason": 0}
"""The calls that have a reason, and the index of that argument."""
_CREATED_ELSEWHERE = {"reason", "event", "why.reason", "*obstacle", "*pause"} | {
    f"{name}.reason" for name in ("condition", "error", "failed", "drain", "notice", "warning", "resolved")
}
"""Arguments whose reasons an ``EventReason`` or another of these calls creates."""
_CAMEL = re.compile(r"[A-Z][A-Za-z]+")


class UnknownReasonError(RuntimeError):
    """A call records an event with a reason that can't be found in the code."""


def page() -> str:
    """All events that Tenon records."""
    event_reasons = reasons()
    complete("event", event_reasons, set(EVENTS))
    return "\n".join(
        [
            "# Events",
            "",
            (
                "Tenon records events on the objects that they are about: see `kubectl describe`, or "
                "`kubectl get events -A --field-selector reportingComponent=tenon`. The same event is not recorded "
                "again within five minutes; later its count is increased."
            ),
            "",
            *table(("reason", "meaning"), [(f"`{reason}`", EVENTS[reason]) for reason in sorted(event_reasons)]),
            "",
            (
                "If EC2 refuses a launch, the reason is EC2's error code without its dots, such as "
                "`InsufficientInstanceCapacity` or `UnauthorizedOperation`."
            ),
        ]
    )


def reasons() -> set[str]:
    """The reasons of all events in the code.

    Raises:
        UnknownReasonError: a call's reason can't be found.
    """
    event_reasons: set[str] = set()
    for path in sorted([*(ROOT / "shared").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]):
        for call, argument in _calls_with_reason(ast.parse(path.read_text(encoding="utf-8"))):
            literals = {
                n.value
                for n in ast.walk(argument)
                if isinstance(n, ast.Constant) and isinstance(n.value, str) and _CAMEL.fullmatch(n.value)
            }
            if not literals and ast.unparse(argument) not in _CREATED_ELSEWHERE:
                where = f"{path.relative_to(ROOT)}:{call.lineno}"
                raise UnknownReasonError(f"{where}: the reason {ast.unparse(argument)} must be an EventReason")
            event_reasons |= literals
    return event_reasons


def _calls_with_reason(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls with a reason, and the argument that is the reason."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        index = _REASON_ARGUMENT.get(name)
        # Such a call also has a message: with fewer arguments it is a call of another function of that name.
        if index is None or (name != "EventReason" and len(node.args) < index + 2 and not _starred(node)):
            continue
        yield node, node.args[min(index, len(node.args) - 1)]


def _starred(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in call.args)
