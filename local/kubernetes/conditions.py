"""The conditions of an object's status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.objects import timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Obj


def condition_status(obj: Obj, type_: str) -> str:
    """The status of the object's condition, or "" when it has no such condition."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((c["status"] for c in conditions if c.get("type") == type_), "")


def with_condition(
    conditions: list[Obj], type_: str, *, status: str, now: datetime, reason: str = "", message: str = ""
) -> list[Obj]:
    """The conditions with one set; ``lastTransitionTime`` changes only with the status."""
    before = next((c for c in conditions if c["type"] == type_), None)
    since = before["lastTransitionTime"] if before and before["status"] == status else timestamp(now)
    condition: Obj = {"type": type_, "status": status, "lastTransitionTime": since}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return replace_condition(conditions, condition)


def replace_condition(conditions: list[Obj], condition: Obj) -> list[Obj]:
    """The conditions with this one in place of the one of its type."""
    if any(c["type"] == condition["type"] for c in conditions):
        return [condition if c["type"] == condition["type"] else c for c in conditions]
    return [*conditions, condition]
