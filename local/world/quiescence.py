"""Whether a world is idle: only sweeps without effect for long enough, and nothing unfinished."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from shared.api import labels
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from local.aws.calls import Call
    from local.kubernetes.objects import Change
    from local.kubernetes.registry.store import Store

MIN_QUIET_TIME = timedelta(seconds=150)
MIN_QUIET_REAL_TIME = timedelta(seconds=90)
"""In real time, for which people wait: a minute has each sweep once, disruption's 20 s after the others'."""
_IGNORED_KINDS = frozenset({"Lease", "Event", "CSINode"})
_WRITE_PREFIXES = ("Create", "Terminate", "Delete", "Run")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Unfinished(Struct, kw_only=True):
    """Unfinished work: pending pods without an event that explains why, and objects being deleted; by name."""

    pending: tuple[str, ...]
    deleting: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.pending or self.deleting)


class ActivityMonitor:
    """The time of the last activity other than leases, events and heartbeats."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self.last = now()

    def change(self, change: Change) -> None:
        """Take in a change in the cluster."""
        if change.kind.kind in _IGNORED_KINDS:
            return
        if (
            change.previous is None
            or change.type != "MODIFIED"
            or _without_heartbeats(change.object) != _without_heartbeats(change.previous)
        ):
            self.last = self._now()

    def call(self, call: Call) -> None:
        """Take in a call to AWS."""
        if call.service == "ec2" and call.operation.startswith(_WRITE_PREFIXES):
            self.last = self._now()

    def is_quiet(self, store: Store, *, in_real_time: bool = False) -> bool:
        """Whether the last activity is long enough ago, and nothing is unfinished."""
        quiet = self._now() - self.last
        return quiet >= required_quiet_time(store, in_real_time=in_real_time) and not unfinished(store)


def required_quiet_time(store: Store, *, in_real_time: bool = False) -> timedelta:
    """How long nothing must have happened: 150 s, or twice the longest finite consolidateAfter of a NodePool.

    In real time 90 s.
    """
    least = MIN_QUIET_REAL_TIME if in_real_time else MIN_QUIET_TIME
    longest = 0.0
    for kind in store.served():
        if (kind.group, kind.kind) == (labels.GROUP, "NodePool"):
            for pool in store.list(kind):
                text = str(pool.get("spec", {}).get("disruption", {}).get("consolidateAfter", ""))
                longest = max(longest, sum(float(n) * _UNITS[unit] for n, unit in _DURATION.findall(text)))
        if (kind.group, kind.kind) == (labels.GROUP, "Provisioner"):
            for pool in store.list(kind):
                longest = max(longest, float(pool.get("spec", {}).get("ttlSecondsAfterEmpty") or 0))
    return max(least, timedelta(seconds=2 * longest))


def unfinished(store: Store) -> Unfinished:
    """Pending pods without an event of Tenon, and pods, nodes and NodeClaims that are being deleted."""
    explained = {
        event.get("involvedObject", {}).get("uid")
        for event in store.list(kinds.EVENTS)
        if str(event.get("source", {}).get("component", "")).startswith("tenon")
    }
    pending: list[str] = []
    deleting: list[str] = []
    for pod in store.list(kinds.PODS):
        if pod["metadata"].get("deletionTimestamp"):
            deleting.append(_name("Pod", pod))
        elif not pod["spec"].get("nodeName") and not _gated(pod) and pod["metadata"]["uid"] not in explained:
            pending.append(_name("Pod", pod))
    for kind in store.served():
        if kind.kind in ("Node", "NodeClaim"):
            deleting += [_name(kind.kind, obj) for obj in store.list(kind) if obj["metadata"].get("deletionTimestamp")]
    return Unfinished(pending=tuple(pending), deleting=tuple(deleting))


def _gated(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _name(kind: str, obj: dict[str, Any]) -> str:
    namespace = obj["metadata"].get("namespace", "")
    return f"{kind} {namespace}/{obj['metadata']['name']}" if namespace else f"{kind} {obj['metadata']['name']}"


def _without_heartbeats(obj: dict[str, Any]) -> dict[str, Any]:
    """The object without versions and heartbeats."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in ("resourceVersion", "managedFields", "generation")}
    status = obj.get("status")
    if isinstance(status, dict) and status.get("conditions"):
        conditions = [{k: v for k, v in item.items() if k != "lastHeartbeatTime"} for item in status["conditions"]]
        status = {**status, "conditions": conditions}
    return {**obj, "metadata": meta, "status": status}
