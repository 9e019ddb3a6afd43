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
from shared.api.meta import condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodeclaim import NodeClaim

REQUEUE_AT = "tenon.sh/requeue-at"
"""Annotation on a NodeClaim that is being deleted: when its drain is reconciled next (RFC 3339)."""

_CLOCK_TOLERANCE = timedelta(seconds=0.5)
_OVERDUE_AFTER = timedelta(seconds=30)
_MIN_WAIT = timedelta(seconds=1)
_MAX_WAIT_FOR_PODS = timedelta(seconds=5)
_MAX_WAIT = timedelta(minutes=15)
"""SQS delays a message by at most this."""
_WAIT_FOR_REPLACEMENT = timedelta(seconds=10)
_WAIT_FOR_INSTANCE = timedelta(seconds=3)
_BACKOFF_DIVISOR = 20
"""The wait is a twentieth of the time waited so far."""


class WaitReason(Enum):
    """What a drain waits for."""

    PODS = "pods"
    """Pods are terminating."""
    REPLACEMENT = "replacement"
    """Evictions are delayed until a replacement node is registered, which is reported by a message of its own."""
    INSTANCE = "instance"
    """The instance is shutting down."""
    VOLUMES = "volumes"
    """The node is drained, and volumes are being detached."""
    BLOCKED = "blocked"
    """A PodDisruptionBudget or do-not-disrupt annotation blocks eviction."""


def requeue_at(annotations: Mapping[str, str]) -> datetime | None:
    """The requeue time in a NodeClaim's annotations; None if it is missing or invalid."""
    try:
        moment = datetime.fromisoformat(annotations.get(REQUEUE_AT, ""))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


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


def requeue_after(claim: NodeClaim, wait_reason: WaitReason, *, latest: datetime | None, now: datetime) -> timedelta:
    """How long to wait until the next reconcile, in whole seconds; never past the moment ``latest``.

    1 to 5 s while pods terminate, 3 s for an instance, 10 s for a replacement. While eviction is blocked, a twentieth
    of the time since the deletion, at most 15 minutes, so two days take about 300 reconciles. For volumes, a twentieth
    of the time since the node was drained.
    """
    if wait_reason is WaitReason.INSTANCE:
        wait = _WAIT_FOR_INSTANCE
    elif wait_reason is WaitReason.REPLACEMENT:
        wait = _WAIT_FOR_REPLACEMENT
    else:
        waited = now - _waiting_since(claim, wait_reason, now)
        maximum = _MAX_WAIT_FOR_PODS if wait_reason is WaitReason.PODS else _MAX_WAIT
        wait = min(max(timedelta(seconds=waited // timedelta(seconds=_BACKOFF_DIVISOR)), _MIN_WAIT), maximum)
    return wait if latest is None or latest <= now else min(wait, latest - now)


def _waiting_since(claim: NodeClaim, wait_reason: WaitReason, now: datetime) -> datetime:
    if wait_reason is not WaitReason.VOLUMES:
        return claim.metadata.deletion_timestamp or now
    drained = condition(claim.status.conditions, nodeclaim.DRAINED)
    return (drained.last_transition_time if drained is not None and drained.status == "True" else None) or now
