"""When a drain is reconciled again: the requeue time on the NodeClaim, and how long to wait until then.

The requeue time is an annotation on the NodeClaim, so each NodeClaim has one chain of reconciles, however many messages
arrive. Messages before that time are ignored. A message after that time reconciles the NodeClaim and writes the next
requeue time with a precondition; of two messages at once, one succeeds and the other stops. If a delayed message was
lost, any later message continues the chain.

The relay's message that a drain is unblocked is the exception: it is followed before the requeue time if the drain has
begun. Such a reconcile leaves the requeue time alone unless it needs an earlier one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

from shared.api import nodeclaim
from shared.api.meta import condition, parse_timestamp
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodeclaim import NodeClaim

REQUEUE_AT = "tenon.sh/requeue-at"
"""Annotation on a NodeClaim that is being deleted: when its drain is reconciled next (RFC 3339)."""

_CLOCK_TOLERANCE = timedelta(seconds=0.5)
_OVERDUE_AFTER = timedelta(seconds=30)
_SECOND = timedelta(seconds=1)
_MAX_WAIT = timedelta(minutes=15)
"""SQS delays a message by at most this."""
_WAIT_FOR_REPLACEMENT = timedelta(seconds=10)
MAX_REQUEUES = 500
"""How many messages a chain of reconciles has at most; the next sweep begins a new chain."""


class _Backoff(Struct, kw_only=True):
    """The wait is as long as the time waited so far, from ``first`` to ``doubles_to``; then a share of that time."""

    first: timedelta
    doubles_to: timedelta
    divisor: int
    maximum: timedelta = _MAX_WAIT

    def wait(self, waited: timedelta) -> timedelta:
        doubling = min(max(waited, self.first), self.doubles_to)
        return min(max(doubling, waited / self.divisor), self.maximum)


class WaitReason(Enum):
    """What a drain waits for."""

    PODS = "pods"
    """Pods are terminating."""
    REPLACEMENT = "replacement"
    """Evictions are delayed until a replacement node is registered, which is reported by a message of its own."""
    INSTANCE = "instance"
    """The instance is shutting down, or the node has another controller's finalizer."""
    VOLUMES = "volumes"
    """The node is drained, and volumes are being detached."""
    BLOCKED = "blocked"
    """A PodDisruptionBudget or do-not-disrupt annotation blocks eviction."""
    REFUSED = "refused"
    """EC2 refuses to terminate the instance: it is protected, or the right is missing."""


_BACKOFFS = {
    WaitReason.PODS: _Backoff(first=timedelta(seconds=2), doubles_to=timedelta(seconds=15), divisor=10),
    WaitReason.INSTANCE: _Backoff(
        first=timedelta(seconds=5), doubles_to=timedelta(seconds=30), divisor=10, maximum=timedelta(minutes=2)
    ),
    WaitReason.VOLUMES: _Backoff(first=timedelta(seconds=1), doubles_to=timedelta(seconds=10), divisor=20),
    WaitReason.BLOCKED: _Backoff(first=timedelta(seconds=1), doubles_to=timedelta(seconds=10), divisor=20),
    WaitReason.REFUSED: _Backoff(first=timedelta(seconds=10), doubles_to=timedelta(minutes=2), divisor=10),
}
"""The first waits double, because each reconcile is a message of a chain: Lambda stops chains of about 16 invocations
unless the function allows them (Lambda Developer Guide, "Recursive loop detection"). A shutdown of 60 s takes 5
messages, pods with 40 s of grace take 6."""


_CONDITIONS = {
    WaitReason.VOLUMES: nodeclaim.DRAINED,
    WaitReason.INSTANCE: nodeclaim.INSTANCE_TERMINATING,
    WaitReason.REFUSED: nodeclaim.INSTANCE_TERMINATING,
}
"""The conditions whose changes begin the waits; others begin with the deletion."""


def requeue_at(annotations: Mapping[str, str]) -> datetime | None:
    """The requeue time in a NodeClaim's annotations; None if it is missing or invalid."""
    return parse_timestamp(annotations.get(REQUEUE_AT, ""))


def is_due(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether a message that arrives now is to be followed."""
    moment = requeue_at(claim.metadata.annotations)
    return moment is None or now >= moment - _CLOCK_TOLERANCE


def is_scheduled(claim: NodeClaim, *, until: datetime, now: datetime) -> bool:
    """Whether the next reconcile is due later than now and by ``until``, so that no other needs to be scheduled."""
    moment = requeue_at(claim.metadata.annotations)
    return moment is not None and not is_due(claim, now=now) and moment <= until


def is_overdue(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether the requeue time has passed by 30 s or was never set: the chain of reconciles is broken."""
    return is_due(claim, now=now - _OVERDUE_AFTER)


def requeue_after(
    claim: NodeClaim,
    wait_reason: WaitReason,
    *,
    latest: datetime | None,
    now: datetime,
    pods_evicted_at: datetime | None = None,
) -> timedelta:
    """How long to wait until the next reconcile, in whole seconds; never past the second of the moment ``latest``.

    10 s for a replacement. Otherwise the waits grow: 2 s, 4 s and so on for pods since the last was evicted
    (``pods_evicted_at``), 5 s, 10 s, 20 s for an instance since it began to terminate. While eviction is blocked, a
    twentieth of the time since the deletion, at most 15 minutes, so two days take about 300 reconciles. For volumes, a
    twentieth of the time since the node was drained. Once EC2 refuses, 10 s, 20 s and so on to two minutes, then a
    tenth of the time since.
    """
    if wait_reason is WaitReason.REPLACEMENT:
        wait = _WAIT_FOR_REPLACEMENT
    else:
        waited = max(now - _waiting_since(claim, wait_reason, now, pods_evicted_at), timedelta())
        wait = _SECOND * round(_BACKOFFS[wait_reason].wait(waited) / _SECOND)
    return wait if latest is None or latest <= now else min(wait, latest - now)


def _waiting_since(
    claim: NodeClaim, wait_reason: WaitReason, now: datetime, pods_evicted_at: datetime | None
) -> datetime:
    if wait_reason is WaitReason.PODS and pods_evicted_at is not None:
        return pods_evicted_at
    type_ = _CONDITIONS.get(wait_reason)
    if type_ is None:
        return claim.metadata.deletion_timestamp or now
    ended = condition(claim.status.conditions, type_)
    if wait_reason is WaitReason.VOLUMES and claim.kind != nodeclaim.KIND:
        return claim.metadata.deletion_timestamp or now  # a node without a NodeClaim has no conditions to write to
    begun = "False" if wait_reason is WaitReason.REFUSED else "True"
    return (ended.last_transition_time if ended is not None and ended.status == begun else None) or now
