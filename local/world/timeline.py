"""The events of a world in order, with cluster times, for the demo.

They are derived from changes in the store and calls to AWS, never from Tenon's own reports.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

from local.world.foreign_objects import is_foreign
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from local.aws.calls import Call
    from local.aws.invocation import Invocation
    from local.kubernetes.objects import Change

EventType = Literal[
    "pod created", "pod bound", "pod running", "pod terminating", "pod deleted",
    "claim created", "claim launched", "claim registered", "claim initialized", "claim terminating", "claim deleted",
    "node registered", "node ready", "node not ready", "node cordoned", "node terminating", "node deleted",
    "call", "invocation", "interruption", "dead letter",
]  # fmt: skip

_Json = dict[str, Any]
_CONDITION_DOES_NOT_HOLD = "ConditionalCheckFailedException"
"""DynamoDB's answer to a conditional write."""


class TimelineEvent(Struct, kw_only=True):
    """One event. ``details`` are values for its text: type, zone, node, latency."""

    at: datetime
    type: EventType
    name: str
    details: Mapping[str, Any] = {}


class Timeline:
    """All events so far, oldest first. Subscribers are called for each, in the thread where it occurs."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[TimelineEvent], None]] = []
        self.all: list[TimelineEvent] = []

    def subscribe(self, subscriber: Callable[[TimelineEvent], None]) -> None:
        """Call the subscriber for every later event; it must be fast."""
        self._subscribers.append(subscriber)

    def of(self, *types: EventType) -> list[TimelineEvent]:
        """The events of these types."""
        return [event for event in self.all if event.type in types]

    def add(self, type_: EventType, name: str, *, at: datetime | None = None, **details: object) -> None:
        """Append an event."""
        event = TimelineEvent(at=at or self._now(), type=type_, name=name, details=details)
        with self._lock:
            self.all.append(event)
        for subscriber in self._subscribers:
            subscriber(event)

    def change(self, change: Change) -> None:
        """Add the events of a change in the cluster; objects of other node-class groups have none."""
        if is_foreign(change.object):
            return
        handler = {"Pod": self._pod, "NodeClaim": self._claim, "Node": self._node}.get(change.kind.kind)
        if handler is not None:
            handler(change, change.object, change.previous or {})

    def call(self, call: Call) -> None:
        """Add a call to AWS that writes or failed; a condition that doesn't hold is an answer, not a failure."""
        is_failed = call.error and call.error != _CONDITION_DOES_NOT_HOLD
        if call.operation.startswith(("Create", "Terminate", "Delete", "Run")) or is_failed:
            self.add(
                "call",
                f"{call.service} {call.operation}",
                at=call.at,
                caller=call.caller,
                latency=call.latency,
                error=call.error,
            )

    def invocation(self, invocation: Invocation) -> None:
        """Add an invocation of a function."""
        self.add(
            "invocation",
            invocation.function,
            at=invocation.at,
            trigger=invocation.trigger,
            latency=invocation.latency,
            ok=invocation.ok,
            error=invocation.error,
            request_id=invocation.request_id,
        )

    def _pod(self, change: Change, pod: _Json, before: _Json) -> None:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        node = pod.get("spec", {}).get("nodeName", "")
        if change.type == "ADDED":
            self.add("pod created", name)
        if change.type == "DELETED":
            self.add("pod deleted", name, node=node)
            return
        if node and not before.get("spec", {}).get("nodeName"):
            self.add("pod bound", name, node=node)
        if _condition(pod, "Ready") == "True" and _condition(before, "Ready") != "True":
            self.add("pod running", name, node=node)
        if _deletion_started(pod, before):
            self.add("pod terminating", name, node=node)

    def _claim(self, change: Change, claim: _Json, before: _Json) -> None:
        name, status = claim["metadata"]["name"], claim.get("status", {})
        labels = claim["metadata"].get("labels", {})
        details = {
            "pool": labels.get("karpenter.sh/nodepool", ""),
            "instance_type": labels.get("node.kubernetes.io/instance-type", ""),
            "zone": labels.get("topology.kubernetes.io/zone", ""),
            "capacity_type": labels.get("karpenter.sh/capacity-type", ""),
            "instance": str(status.get("providerID", "")).rsplit("/", 1)[-1],
            "node": status.get("nodeName", ""),
        }
        if change.type == "ADDED":
            annotations = claim["metadata"].get("annotations", {})
            made_for = {
                "planned_price": float(annotations.get("tenon.sh/planned-price", 0.0)),
                "decision": annotations.get("tenon.sh/decision", ""),
                "is_replacement": "tenon.sh/replaces" in annotations,
            }
            self.add("claim created", name, **details, **made_for)
        if change.type == "DELETED":
            self.add("claim deleted", name, **details)
            return
        for condition, type_ in _CLAIM_CONDITIONS:
            if _condition(claim, condition) == "True" and _condition(before, condition) != "True":
                self.add(type_, name, **details)
        if _deletion_started(claim, before):
            self.add("claim terminating", name, **details)

    def _node(self, change: Change, node: _Json, before: _Json) -> None:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels", {})
        details = {
            "instance_type": labels.get("node.kubernetes.io/instance-type", ""),
            "zone": labels.get("topology.kubernetes.io/zone", ""),
            "pool": labels.get("karpenter.sh/nodepool", ""),
        }
        if change.type == "ADDED":
            self.add("node registered", name, **details)
        if change.type == "DELETED":
            self.add("node deleted", name, **details)
            return
        ready, was_ready = _condition(node, "Ready"), _condition(before, "Ready")
        if ready == "True" != was_ready:
            self.add("node ready", name, **details)
        if was_ready == "True" != ready:
            self.add("node not ready", name, **details)
        if _cordoned(node) and not _cordoned(before):
            self.add("node cordoned", name, **details)
        if _deletion_started(node, before):
            self.add("node terminating", name, **details)


_CLAIM_CONDITIONS: tuple[tuple[str, EventType], ...] = (
    ("Launched", "claim launched"),
    ("Registered", "claim registered"),
    ("Initialized", "claim initialized"),
)


def _condition(obj: _Json, kind: str) -> str:
    for condition in obj.get("status", {}).get("conditions") or ():
        if condition.get("type") == kind:
            return str(condition.get("status", ""))
    return ""


def _deletion_started(obj: _Json, before: _Json) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp")) and not before.get("metadata", {}).get("deletionTimestamp")


def _cordoned(node: _Json) -> bool:
    taints = node.get("spec", {}).get("taints") or ()
    return any(taint.get("key") == "karpenter.sh/disrupted" for taint in taints)
