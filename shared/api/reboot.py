"""A reboot in place, as Karpenter keeps it on the NodeClaim, so that either of the two finishes what the other began.

Condition ``Rebooting`` is True from the request to the end, and its reason is how far the reboot is:

- *RebootRequested*: the node is tainted and drained, by eviction only. Then its boot ID is recorded, and the reboot is
  called.
- *RebootIssued*: the node isn't initialized until it has another boot ID and is Ready.

It ends as False with RebootSucceeded, or the NodeClaim is deleted; only a request that can't be read ends as
RebootFailed. Facts: docs/facts/karpenter-1.15.md, "Repair and reboot". The functions here are pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import DurationError, format_duration, parse_duration
from shared.api.meta import annotated, condition, parse_timestamp, timestamp, with_condition
from shared.api.nodeclaim import is_rebooting, rebooting_message
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim

REQUESTED, ISSUED = "RebootRequested", "RebootIssued"
SUCCEEDED, FAILED = "RebootSucceeded", "RebootFailed"
MOST_REBOOTS = 2
"""The reboots of a node within :data:`HISTORY`; after them it is replaced."""
HISTORY = timedelta(hours=24)
_UNHEALTHY = "Unhealthy"
_WHILE_REBOOTING = "Rebooting"
"""The reason of condition Initialized while the node is down."""


def phase(claim: NodeClaim) -> str:
    """How far the reboot of a NodeClaim is that is rebooting: RebootRequested or RebootIssued."""
    rebooting = condition(claim.status.conditions, nodeclaim.REBOOTING)
    return rebooting.reason if rebooting is not None else ""


def requested_at(claim: NodeClaim) -> datetime | None:
    """When the reboot was requested: the condition is True since then, whatever its reason was meanwhile."""
    rebooting = condition(claim.status.conditions, nodeclaim.REBOOTING)
    return rebooting.last_transition_time if rebooting is not None and rebooting.status == "True" else None


def ended_at(claim: NodeClaim) -> datetime | None:
    """When the last reboot ended; None without one, and while one isn't over."""
    rebooting = condition(claim.status.conditions, nodeclaim.REBOOTING)
    return rebooting.last_transition_time if rebooting is not None and rebooting.status == "False" else None


def called_at(claim: NodeClaim) -> datetime | None:
    """When the reboot was first to be called; None before that, and where Karpenter began it."""
    return parse_timestamp(claim.metadata.annotations.get(names.REBOOT_CALLED_AT, ""))


def issued_at(claim: NodeClaim) -> datetime | None:
    """Since when the node is expected to come back, None if it isn't.

    Karpenter takes it from condition Initialized, which becomes Unknown then. Of a node that wasn't initialized before,
    the condition is older than the reboot.
    """
    initialized = condition(claim.status.conditions, nodeclaim.INITIALIZED)
    since = initialized.last_transition_time if initialized is not None and initialized.status == "Unknown" else None
    called = called_at(claim)
    return max(since, called) if since is not None and called is not None else since


def grace_period(claim: NodeClaim) -> timedelta | None:
    """How long the drain before the reboot may take; None: without a bound.

    Raises:
        DurationError: the annotation isn't a duration.
    """
    text = claim.metadata.annotations.get(names.REBOOT_GRACE_PERIOD)
    if text is None:
        return None
    period = parse_duration(text)
    if period is None:
        raise DurationError(f'annotation {names.REBOOT_GRACE_PERIOD}: "{text}" is not a duration (such as 0s or 10m)')
    return period


def reboots(claim: NodeClaim, *, now: datetime) -> tuple[datetime, ...]:
    """When the reboots of the last day were requested; what can't be read doesn't count."""
    texts = claim.metadata.annotations.get(names.REBOOTS, "").split(",")
    return tuple(t for t in map(parse_timestamp, texts) if t is not None and now - t < HISTORY)


def may_reboot(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether the node may be rebooted once more; otherwise it is replaced."""
    return len(reboots(claim, now=now)) < MOST_REBOOTS


def with_grace_period(claim: NodeClaim, period: timedelta | None) -> NodeClaim:
    """The first write of a request: how long the drain may take, and nothing of an earlier reboot."""
    if not _may_be_requested(claim):
        return claim
    text = None if period is None else format_duration(period)
    return _annotated(claim, {names.REBOOT_GRACE_PERIOD: text, names.PRE_BOOT_ID: None, names.REBOOT_CALLED_AT: None})


def with_request(claim: NodeClaim, message: str, *, now: datetime) -> NodeClaim:
    """The second write of a request: its conditions, unless the NodeClaim is rebooting or being deleted."""
    if not _may_be_requested(claim):
        return claim
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.DISRUPTION_REASON,
        status=True,
        reason=_UNHEALTHY,
        message=_UNHEALTHY,
        now=now,
        generation=claim.metadata.generation,
    )
    return _with_conditions(claim, _with_rebooting(claim, conditions, REQUESTED, message, now=now))


def with_call(claim: NodeClaim, boot_id: str, *, now: datetime) -> NodeClaim:
    """The NodeClaim as it is before the reboot is called: with the node's boot ID, and the reboot counted.

    A boot ID that was recorded stays: a call may have been made since.
    """
    if phase(claim) != REQUESTED or claim.metadata.deletion_timestamp is not None:
        return claim
    known = claim.metadata.annotations
    return _annotated(
        _counted(claim, now=now),
        {
            names.PRE_BOOT_ID: known.get(names.PRE_BOOT_ID, boot_id),
            names.REBOOT_CALLED_AT: known.get(names.REBOOT_CALLED_AT, timestamp(now)),
        },
    )


def issued(claim: NodeClaim, *, now: datetime) -> NodeClaim:
    """The NodeClaim once the reboot was called: its node isn't initialized until it is back."""
    if not is_rebooting(claim):
        return claim
    conditions = _with_rebooting(claim, claim.status.conditions, ISSUED, rebooting_message(claim), now=now)
    generation = claim.metadata.generation
    conditions = with_condition(
        conditions,
        nodeclaim.INITIALIZED,
        status=None,
        reason=_WHILE_REBOOTING,
        message="the node is rebooting",
        now=now,
        generation=generation,
    )
    return _with_conditions(claim, nodeclaim.with_ready(conditions, now=now, generation=generation))


def without_call(claim: NodeClaim, *, now: datetime) -> NodeClaim:
    """The first write of an end: nothing of this reboot, but that it is counted."""
    return _annotated(_counted(claim, now=now), {names.PRE_BOOT_ID: None, names.REBOOT_CALLED_AT: None})


def ended(claim: NodeClaim, reason: str, message: str, *, now: datetime) -> NodeClaim:
    """The second write of an end: the condition with its outcome, and no reason for disruption any more."""
    if not is_rebooting(claim):
        return claim
    conditions = [c for c in claim.status.conditions if c.type != nodeclaim.DISRUPTION_REASON]
    return _with_conditions(claim, _with_rebooting(claim, conditions, reason, message, now=now))


def _may_be_requested(claim: NodeClaim) -> bool:
    return not is_rebooting(claim) and claim.metadata.deletion_timestamp is None


def _counted(claim: NodeClaim, *, now: datetime) -> NodeClaim:
    """The NodeClaim with this reboot among those of the last day, once."""
    requested, known = requested_at(claim), reboots(claim, now=now)
    if requested is None or requested.replace(microsecond=0) in known:
        return claim
    return _annotated(claim, {names.REBOOTS: ",".join(map(timestamp, (*known, requested)))})


def _annotated(claim: NodeClaim, annotations: dict[str, str | None]) -> NodeClaim:
    return with_fields(claim, metadata=annotated(claim.metadata, annotations))


def _with_rebooting(
    claim: NodeClaim, conditions: list[Condition], reason: str, message: str, *, now: datetime
) -> list[Condition]:
    """The conditions with Rebooting, which is True while a reboot is requested or issued."""
    return with_condition(
        conditions,
        nodeclaim.REBOOTING,
        status=reason in {REQUESTED, ISSUED},
        reason=reason,
        message=message,
        now=now,
        generation=claim.metadata.generation,
    )


def _with_conditions(claim: NodeClaim, conditions: list[Condition]) -> NodeClaim:
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))
