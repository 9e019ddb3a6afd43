"""What is known of a node's interruption, kept as an annotation on the node. Pure.

So a drain survives any crash: whoever steps next finds the deadline, the hooks that wait, and when it is due.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.kubernetes import Taint
from shared.api.meta import annotated, decode_annotation
from shared.api.taints import NO_SCHEDULE, with_taint
from shared.base.struct import WireStruct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Node

ANNOTATION = "tenon.sh/node-group-interruption"
MARGIN = timedelta(seconds=15)
"""Time before the instance's end in which volumes are detached after the last pod has ended."""
ENDED_AFTER = timedelta(minutes=10)
"""A node that still lives this long after its deadline is like any other of its group."""
_TAINTS = {
    "SpotInterrupted": "aws-node-termination-handler/spot-itn",
    "ScheduledChange": "aws-node-termination-handler/scheduled-maintenance",
    "LifecycleAction": "aws-node-termination-handler/asg-lifecycle-termination",
}
"""The taint of AWS's Node Termination Handler for each reason: alerts and other controllers know them."""
_CLOCK_TOLERANCE = timedelta(seconds=0.5)
_OVERDUE_AFTER = timedelta(seconds=30)


class WaitingHook(WireStruct, kw_only=True):
    """A hook that waits for the drain. Its ``timeout`` is that between heartbeats, in seconds."""

    group: str
    name: str
    token: str
    timeout: int
    heartbeat_at: datetime

    def beaten(self, now: datetime) -> WaitingHook:
        """The hook after a heartbeat: the next one is due after half of the time-out."""
        return with_fields(self, heartbeat_at=now + timedelta(seconds=self.timeout) / 2)


class NodeInterruption(WireStruct, kw_only=True):
    """``deadline`` is when the pods must be gone, whatever their budgets allow; None: they are evicted only.

    ``next_step`` is when the next step of the drain is due; ``drained`` is whether none is.
    """

    reason: str
    since: datetime
    next_step: datetime
    deadline: datetime | None = None
    hooks: tuple[WaitingHook, ...] = ()
    drained: bool = False

    def is_due(self, now: datetime) -> bool:
        """Whether a message that arrives now is to be followed."""
        return not self.drained and now >= self.next_step - _CLOCK_TOLERANCE

    def is_overdue(self, now: datetime) -> bool:
        """Whether the message of the next step was lost."""
        return not self.drained and now >= self.next_step + _OVERDUE_AFTER

    def is_past(self, now: datetime) -> bool:
        """Whether the instance has outlived its interruption."""
        return self.drained and now >= (self.deadline or self.since) + ENDED_AFTER


def interruption_of(node: Node) -> NodeInterruption | None:
    """The node's interruption; None without one, or if the annotation is malformed."""
    try:
        interruption = decode_annotation(node.metadata.annotations.get(ANNOTATION, ""), NodeInterruption)
    except msgspec.MsgspecError:
        return None
    return interruption if interruption.reason in _TAINTS else None


def merged(before: NodeInterruption | None, new: NodeInterruption) -> NodeInterruption:
    """The interruption after another event: the earlier deadline and the hooks of both; the next step is due now.

    An event that adds nothing leaves it as it was.
    """
    if before is None:
        return new
    known = {hook.token for hook in before.hooks}
    hooks = (*before.hooks, *(hook for hook in new.hooks if hook.token not in known))
    deadline = min((d for d in (before.deadline, new.deadline) if d is not None), default=None)
    if hooks == before.hooks and deadline == before.deadline:
        return before
    return with_fields(before, deadline=deadline, hooks=hooks, next_step=new.next_step, drained=False)


def with_interruption(node: Node, interruption: NodeInterruption) -> Node:
    """The node with the annotation."""
    text = msgspec.json.encode(interruption).decode()
    return with_fields(node, metadata=annotated(node.metadata, {ANNOTATION: text}))


def cordoned(node: Node, interruption: NodeInterruption) -> Node:
    """The node as Node Termination Handler cordons it: unschedulable, and with the taint of the reason."""
    taints = node.spec.taints
    key = _TAINTS[interruption.reason]
    if all(taint.key != key for taint in taints):
        value = str(int(interruption.since.timestamp()))
        taints = with_taint(taints, Taint(key=key, value=value, effect=NO_SCHEDULE))
    return with_fields(node, spec=with_fields(node.spec, taints=taints, unschedulable=True))


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """The earliest of the times; None if there is none."""
    return min((time for time in times if time is not None), default=None)
