"""How controllers write what they saw: conditions and status fields, only when they change.

A write that changes nothing would wake every watcher for nothing, so all of these compare first. Times are whole
seconds, as the API writes them.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.errors import ApiError
from local.kubernetes.registry.object_meta import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

CONFLICT, NOT_FOUND = 409, 404


def parsed(text: str) -> datetime:
    """The moment of a timestamp of the API (RFC 3339, Z)."""
    return datetime.fromisoformat(text)


def with_condition(
    conditions: list[Obj], type_: str, *, status: str, now: datetime, reason: str = "", message: str = ""
) -> list[Obj]:
    """The conditions with one set; ``lastTransitionTime`` moves only with the status."""
    before = next((c for c in conditions if c["type"] == type_), None)
    since = before["lastTransitionTime"] if before and before["status"] == status else timestamp(now)
    after: Obj = {"type": type_, "status": status, "lastTransitionTime": since}
    if reason:
        after["reason"] = reason
    if message:
        after["message"] = message
    if before is None:
        return [*conditions, after]
    return [after if c["type"] == type_ else c for c in conditions]


def condition_status(obj: Obj, type_: str) -> str:
    """The condition's status, or "" when it isn't there."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((c["status"] for c in conditions if c["type"] == type_), "")


def rewrite(store: Store, kind: Kind, obj: Obj, change: Callable[[Obj], Obj]) -> Obj | None:
    """Write ``change(latest state)`` of that very object (same uid), unless it is equal; None when it is gone."""
    meta = obj["metadata"]
    with store.lock:
        latest = store.find(kind, meta["name"], namespace=meta.get("namespace", ""))
        if latest is None or latest["metadata"]["uid"] != meta["uid"]:
            return None
        return store.write(kind, change(latest), latest)


def set_status(store: Store, kind: Kind, obj: Obj, **fields: object) -> Obj | None:
    """Set some fields of the status, leaving the others; a field given as None is removed."""

    def change(latest: Obj) -> Obj:
        status = {**(latest.get("status") or {}), **fields}
        return {**latest, "status": {name: value for name, value in status.items() if value is not None}}

    return rewrite(store, kind, obj, change)


def remove(store: Store, kind: Kind, obj: Obj, *, grace: int | None = None) -> None:
    """Delete that very object (same uid); one that is gone already is fine."""
    meta = obj["metadata"]
    try:
        store.delete(
            kind,
            meta["name"],
            namespace=meta.get("namespace", ""),
            grace_period_seconds=grace,
            preconditions={"uid": meta["uid"]},
        )
    except ApiError as error:
        if error.status not in {CONFLICT, NOT_FOUND}:
            raise


def emit(
    store: Store, about: Obj, *, reason: str, message: str, now: datetime, component: str, warning: bool = False
) -> None:
    """Record an event on the object, as controllers do for people; a namespace that is going takes none."""
    meta = about["metadata"]
    namespace = meta.get("namespace", "")
    event = {
        "metadata": {"generateName": f"{meta['name'][:200]}.", "namespace": namespace or "default"},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": namespace,
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }
    try:
        store.create(kinds.EVENTS, event, namespace=namespace or "default")
    except ApiError as error:
        if error.status not in {403, NOT_FOUND}:
            raise
