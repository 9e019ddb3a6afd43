"""The page of events. Their reasons are found in the code: where they are recorded, or where they are made.

A reason is a literal at the call that records it, or ``EventReason("…")`` where that is somewhere else. A call that
has neither is an error here unless it is one whose reasons are made elsewhere.
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
_REASON_AT = {"record": 2, "delete_nodeclaim": 1, "NotFoundError": 0, "EventReason": 0}
"""The calls that a reason is said in, and which of their arguments it is."""
_MADE_ELSEWHERE = {"reason", "event", "why.reason", "*obstacle"} | {
    f"{what}.reason" for what in ("condition", "error", "failed", "drain", "notice")
}
"""What such a call may pass instead: reasons that are made by an ``EventReason`` or by another of these calls."""
_CAMEL = re.compile(r"[A-Z][A-Za-z]+")


class UnknownReasonError(RuntimeError):
    """A call records an event with a reason that can't be found by reading the code."""


def page() -> str:
    """Every event that Tenon writes."""
    found = reasons()
    complete("event", found, set(EVENTS))
    return "\n".join(
        [
            "# Events",
            "",
            (
                "On the object that they are about: `kubectl describe`, or "
                "`kubectl get events -A --field-selector reportingComponent=tenon`. The same thing said again within "
                "five minutes is not written again; later it is one event with a count."
            ),
            "",
            *table(("reason", "meaning"), [(f"`{reason}`", EVENTS[reason]) for reason in sorted(found)]),
            "",
            (
                "What EC2 refuses for a NodeClaim is told by EC2's own error code without its dots, such as "
                "`InsufficientInstanceCapacity` or `UnauthorizedOperation`."
            ),
        ]
    )


def reasons() -> set[str]:
    """The reasons of all events in the code.

    Raises:
        UnknownReasonError: one can't be found.
    """
    found: set[str] = set()
    for path in sorted([*(ROOT / "shared").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]):
        for call, argument in _said(ast.parse(path.read_text(encoding="utf-8"))):
            literals = {
                n.value
                for n in ast.walk(argument)
                if isinstance(n, ast.Constant) and isinstance(n.value, str) and _CAMEL.fullmatch(n.value)
            }
            if not literals and ast.unparse(argument) not in _MADE_ELSEWHERE:
                where = f"{path.relative_to(ROOT)}:{call.lineno}"
                raise UnknownReasonError(f"{where}: make the reason {ast.unparse(argument)} an EventReason")
            found |= literals
    return found


def _said(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls that say a reason, and the argument that is it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        at = _REASON_AT.get(name)
        # A message and more belong to it: what has only one argument and is no EventReason is another's.
        if at is None or (name != "EventReason" and len(node.args) < at + 2 and not _starred(node)):
            continue
        yield node, node.args[min(at, len(node.args) - 1)]


def _starred(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in call.args)
