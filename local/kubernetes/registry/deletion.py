"""What a delete request makes of an object: marked as being deleted, removed, or first the one and then the other.

Sources: apiserver ``rest.BeforeDelete`` and ``registry.Store.Delete``, ``pkg/registry/core/pod/strategy.go`` and
``pkg/registry/core/namespace/storage``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

from local.kubernetes import errors, kinds
from local.kubernetes.objects import parse_timestamp, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj

Propagation = Literal["Background", "Foreground", "Orphan"]

FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
_ORPHANED_BY_DEFAULT = frozenset(kind.resource for kind in (kinds.JOBS, kinds.REPLICATION_CONTROLLERS))
_ENDED = frozenset(("Succeeded", "Failed"))
_DEFAULT_GRACE_PERIOD = 30


class Deletion(NamedTuple):
    """The object as the request leaves it, and whether it is removed."""

    object: Obj
    removed: bool


def deletion(
    kind: Kind, old: Obj, *, grace_period: int | None, propagation: Propagation | None, now: datetime
) -> Deletion:
    """What deleting the object does. ``grace_period`` in seconds, and ``propagation``, are those of the request."""
    if kind.resource == kinds.NAMESPACES.resource:
        return _of_namespace(old, propagation, now)
    meta = dict(old["metadata"])
    if kind.resource == kinds.PODS.resource:
        remaining = _set_grace_period(meta, old, grace_period, now)
        if remaining is None:
            return Deletion(old, removed=False)
    else:
        remaining = 0
    _set_finalizers(meta, _finalizers(kind, meta, propagation))
    if meta.get("finalizers") and "deletionTimestamp" not in meta:
        _mark(meta, now, 0)
    waits = bool(meta.get("finalizers")) or remaining > 0
    return Deletion({**old, "metadata": meta}, removed=not waits)


def _of_namespace(old: Obj, propagation: Propagation | None, now: datetime) -> Deletion:
    """A namespace terminates, and is removed once its content and finalizers are gone."""
    meta = dict(old["metadata"])
    if "deletionTimestamp" in meta:
        return Deletion(old, removed=not (old.get("spec") or {}).get("finalizers") and not meta.get("finalizers"))
    meta["deletionTimestamp"] = timestamp(now)
    _set_finalizers(meta, _finalizers(kinds.NAMESPACES, meta, propagation))
    status = {**(old.get("status") or {}), "phase": "Terminating"}
    return Deletion({**old, "metadata": meta, "status": status}, removed=False)


def _set_grace_period(meta: Obj, pod: Obj, requested: int | None, now: datetime) -> int | None:
    """Mark the pod's metadata, in place. The seconds that it may still run; None if its deletion is under way."""
    requested = 1 if requested is not None and requested < 0 else requested
    if "deletionTimestamp" not in meta:
        period = _grace_period(pod, requested)
        _mark(meta, now + timedelta(seconds=period), period)
        return period
    pending: int = meta.get("deletionGracePeriodSeconds", 0)
    if pending == 0:
        return 0
    if requested is None or requested >= pending:
        return None
    # The deletion began when its grace period did, and must not have ended in the past.
    end = parse_timestamp(meta["deletionTimestamp"]) + timedelta(seconds=requested - pending)
    if end < now:
        end, requested = now, min(requested, 1)
    meta["deletionTimestamp"] = timestamp(end)
    meta["deletionGracePeriodSeconds"] = requested
    return requested


def _grace_period(pod: Obj, requested: int | None) -> int:
    """The grace period in seconds; 0 for a pod that has no node or has ended."""
    spec = pod["spec"]
    if not spec.get("nodeName") or pod["status"].get("phase") in _ENDED:
        return 0
    default: int = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_PERIOD)
    period = default if requested is None else requested
    return 1 if period < 0 else period


def _mark(meta: Obj, time: datetime, period: int) -> None:
    meta["deletionTimestamp"] = timestamp(time)
    meta["deletionGracePeriodSeconds"] = period
    if meta.get("generation"):
        meta["generation"] += 1


def _finalizers(kind: Kind, meta: Obj, propagation: Propagation | None) -> list[str]:
    """The finalizers with those of the garbage collector that the propagation requires."""
    present: list[str] = meta.get("finalizers") or []
    own = {FOREGROUND_FINALIZER: "Foreground", ORPHAN_FINALIZER: "Orphan"}
    if propagation is None:
        default = "Orphan" if kind.resource in _ORPHANED_BY_DEFAULT else "Background"
        wanted = next((own[name] for name in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER) if name in present), default)
    else:
        wanted = propagation
    added = [name for name, policy in own.items() if policy == wanted]
    finalizers = [name for name in present if name not in own] + added
    return present if set(finalizers) == set(present) else finalizers


def _set_finalizers(meta: Obj, finalizers: list[str]) -> None:
    meta.pop("finalizers", None)
    if finalizers:
        meta["finalizers"] = finalizers


def check_preconditions(kind: Kind, obj: Obj, preconditions: Mapping[str, str] | None) -> None:
    """Check the uid and the resourceVersion that the request requires.

    Raises:
        ApiError: 409, the object has others.
    """
    of_namespace = kind.resource == kinds.NAMESPACES.resource
    for name, label, hint in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        required, actual = (preconditions or {}).get(name), obj["metadata"][name]
        if not required or required == actual:
            continue
        if of_namespace:
            raise errors.precondition_failed(kind, obj["metadata"]["name"], label, required, actual)
        why = f"the {label} in the precondition ({required}) does not match the {label} in record ({actual}). {hint}"
        raise errors.deletion_conflict(kind, obj["metadata"]["name"], why)
