"""How controllers write: updates of objects and status, deletions, and events.

An update that changes nothing would wake every watcher, so updates compare first. Times are whole seconds, as the API
writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.kubernetes.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError
from local.kubernetes.objects import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store


_ATTEMPTS = 5


def create(store: Store, kind: Kind, obj: Obj, namespace: str) -> Obj | None:
    """Create the object; None when the API refuses it (a terminating namespace, a name that exists)."""
    try:
        return store.create(kind, obj, namespace=namespace)
    except ApiError as error:
        if error.status not in {FORBIDDEN, NOT_FOUND, CONFLICT}:
            raise
        return None


def update(store: Store, kind: Kind, obj: Obj, change: Callable[[Obj], Obj]) -> Obj | None:
    """Write ``change(latest state)`` of the object with this uid unless it is equal; None if the object is gone."""
    meta = obj["metadata"]
    with store.update_lock:
        for attempt in range(_ATTEMPTS):
            latest = store.find(kind, meta["name"], namespace=meta.get("namespace", ""))
            if latest is None or latest["metadata"]["uid"] != meta["uid"]:
                return None
            try:
                return store.write(kind, change(latest), latest)
            except ApiError as error:
                # Only a real cluster has other writers; its store has the present state now.
                if error.status == NOT_FOUND:
                    return None
                if error.status != CONFLICT or attempt == _ATTEMPTS - 1:
                    raise
    return None


def update_status(store: Store, kind: Kind, obj: Obj, **fields: object) -> Obj | None:
    """Set fields of the status and keep the others; a field that is None is removed."""

    def change(latest: Obj) -> Obj:
        status = {**(latest.get("status") or {}), **fields}
        return {**latest, "status": {name: value for name, value in status.items() if value is not None}}

    return update(store, kind, obj, change)


def delete(store: Store, kind: Kind, obj: Obj, *, grace_period: int | None = None) -> None:
    """Delete the object with this uid, if it still exists. ``grace_period`` in seconds."""
    meta = obj["metadata"]
    try:
        store.delete(
            kind,
            meta["name"],
            namespace=meta.get("namespace", ""),
            grace_period_seconds=grace_period,
            preconditions={"uid": meta["uid"]},
        )
    except ApiError as error:
        if error.status not in {CONFLICT, NOT_FOUND}:
            raise


def record_event(
    store: Store, involved: Obj, *, reason: str, message: str, now: datetime, component: str, warning: bool = False
) -> None:
    """Record an event on the object, unless its namespace is terminating or gone."""
    meta = involved["metadata"]
    namespace = meta.get("namespace", "")
    event = {
        "metadata": {"generateName": f"{meta['name'][:200]}.", "namespace": namespace or "default"},
        "involvedObject": {
            "apiVersion": involved["apiVersion"],
            "kind": involved["kind"],
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
        if error.status not in {FORBIDDEN, NOT_FOUND}:
            raise
