"""The disruption queue: NodeClaims that are deleted once their replacements are initialized.

The queue is kept on the claims themselves: in the condition ``DisruptionReason`` and in an annotation that names the
replacements. Claims are annotated before anything else is done, so a run may die between any two steps. The next run
finds the annotations: with all replacements there it continues, otherwise it rolls the command back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from shared.api import nodeclaim
from shared.api.duration import format_duration
from shared.api.labels import TERMINATION_GRACE_PERIOD
from shared.api.meta import annotated, decode_annotation, is_true, with_condition
from shared.api.nodeclaim import is_rebooting
from shared.base.struct import Struct, WireStruct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.nodeclaim import NodeClaim

QUEUE_ANNOTATION = "tenon.sh/disruption"
"""Annotation on a NodeClaim in the queue: a :class:`QueueEntry` as JSON."""
REPLACEMENT_TIMEOUT = timedelta(minutes=10)
"""How long replacements may take to initialize. Karpenter's ``minRetryDuration``."""


class QueueEntry(WireStruct, kw_only=True):
    """A command, as noted on each of its claims, with the same ``id`` and ``replacements`` (names of claims).

    ``terminate_first`` is the command's.
    """

    id: str
    reason: str
    since: datetime
    message: str = ""
    replacements: list[str] = []
    terminate_first: str = ""


class Rollback(Struct, kw_only=True):
    """A claim to take out of the queue, why, and the names of its replacements that are no longer needed."""

    claim: NodeClaim
    why: str
    surplus: tuple[str, ...] = ()


class QueueStatus(Struct, kw_only=True):
    """``completed`` claims can be deleted now, ``rollbacks`` have failed, the others wait for replacements.

    ``waiting_since``: when the newest replacement that is waited for was created; None: no claim waits.
    """

    completed: tuple[tuple[NodeClaim, QueueEntry], ...] = ()
    rollbacks: tuple[Rollback, ...] = ()
    waiting_since: datetime | None = None


def queue_entry(claim: NodeClaim) -> QueueEntry | None:
    """The claim's queue entry; None where it has none, or none that can be parsed."""
    try:
        return decode_annotation(claim.metadata.annotations.get(QUEUE_ANNOTATION, ""), QueueEntry)
    except msgspec.DecodeError:
        return None


def is_queued(claim: NodeClaim) -> bool:
    """Whether the claim is in the queue, and hasn't been deleted yet. The condition of one that reboots says why."""
    has_reason = is_true(claim.status.conditions, nodeclaim.DISRUPTION_REASON) and not is_rebooting(claim)
    return claim.metadata.deletion_timestamp is None and (QUEUE_ANNOTATION in claim.metadata.annotations or has_reason)


def replaced_claims(claims: Iterable[NodeClaim]) -> frozenset[str]:
    """The names of queued claims whose replacements all exist, so that they only wait for their deletion."""
    claims = tuple(claims)
    existing = {c.name for c in claims}
    replacements = {c.name: entry.replacements for c in claims if (entry := queue_entry(c)) is not None}
    return frozenset(name for name, needed in replacements.items() if needed and existing.issuperset(needed))


def replacement_names(claims: Iterable[NodeClaim]) -> frozenset[str]:
    """The names of claims and nodes that replace claims in the queue: pods are expected on them."""
    claims = tuple(claims)
    names = {name for c in claims if (entry := queue_entry(c)) is not None for name in entry.replacements}
    return frozenset(names | {c.status.node_name for c in claims if c.name in names and c.status.node_name})


def with_queue_entry(claim: NodeClaim, entry: QueueEntry, *, grace_period: timedelta | None = None) -> NodeClaim:
    """The claim with the queue entry in its annotation, and the bound of its drain in another (None: without one)."""
    annotations = {
        QUEUE_ANNOTATION: msgspec.json.encode(entry).decode(),
        TERMINATION_GRACE_PERIOD: None if grace_period is None else format_duration(grace_period),
    }
    return with_fields(claim, metadata=annotated(claim.metadata, annotations))


def with_disruption_condition(claim: NodeClaim, entry: QueueEntry, *, now: datetime) -> NodeClaim:
    """The claim with Karpenter's condition ``DisruptionReason``."""
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.DISRUPTION_REASON,
        status=True,
        reason=entry.reason,
        message=entry.message,
        now=now,
        generation=claim.metadata.generation,
    )
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))


def without_queue_entry(claim: NodeClaim) -> NodeClaim:
    """The claim without the annotations."""
    annotations = {QUEUE_ANNOTATION: None, TERMINATION_GRACE_PERIOD: None}
    return with_fields(claim, metadata=annotated(claim.metadata, annotations))


def without_disruption_condition(claim: NodeClaim) -> NodeClaim:
    """The claim without the condition."""
    conditions = [c for c in claim.status.conditions if c.type != nodeclaim.DISRUPTION_REASON]
    return with_fields(claim, status=with_fields(claim.status, conditions=conditions))


def queue_status(
    claims: Iterable[NodeClaim], *, now: datetime, withdrawn: Mapping[str, str] = MappingProxyType({})
) -> QueueStatus:
    """Which claims of the queue can be deleted now, which must be rolled back, and whether others wait.

    ``withdrawn`` are the claims whose reason no longer holds, by name: why.
    """
    by_name = {c.name: c for c in claims}
    completed: list[tuple[NodeClaim, QueueEntry]] = []
    rollbacks: list[Rollback] = []
    since: list[datetime] = []
    for claim in sorted((c for c in by_name.values() if is_queued(c)), key=lambda c: c.name):
        entry = queue_entry(claim)
        if entry is None or not entry.replacements:
            # The run died before it executed the command. A later reconcile decides again.
            rollbacks.append(Rollback(claim=claim, why="the command was interrupted before it was executed"))
            continue
        rollback = _withdrawal(claim, entry, withdrawn) or _rollback(claim, entry, by_name, now)
        if rollback is not None:
            rollbacks.append(rollback)
        elif all(_is_initialized(by_name[name]) for name in entry.replacements):
            completed.append((claim, entry))
        else:
            created = (by_name[name].metadata.creation_timestamp or now for name in entry.replacements)
            since.append(max(created))
    waiting_since = max(since, default=None)
    return QueueStatus(completed=tuple(completed), rollbacks=tuple(rollbacks), waiting_since=waiting_since)


def _withdrawal(claim: NodeClaim, entry: QueueEntry, withdrawn: Mapping[str, str]) -> Rollback | None:
    why = withdrawn.get(claim.name, "")
    return Rollback(claim=claim, why=why, surplus=tuple(entry.replacements)) if why else None


def _rollback(claim: NodeClaim, entry: QueueEntry, by_name: Mapping[str, NodeClaim], now: datetime) -> Rollback | None:
    """The rollback of a command with a replacement that was deleted or isn't initialized in time; None without one.

    Late replacements stay: as long as they exist, no other is launched for the same pods. Liveness deletes those that
    never register, and emptiness those that no pod needs when they are initialized.
    """
    for name in entry.replacements:
        if _is_lost(by_name.get(name)):
            why = f"replacement {name} was deleted before it was initialized"
            return Rollback(claim=claim, why=why, surplus=tuple(entry.replacements))
    late = [name for name in entry.replacements if not _is_initialized(by_name[name])]
    if not late or now - entry.since <= REPLACEMENT_TIMEOUT:
        return None
    minutes = REPLACEMENT_TIMEOUT.total_seconds() / 60
    return Rollback(claim=claim, why=f"replacement {late[0]} was not initialized within {minutes:.0f} minutes")


def _is_lost(claim: NodeClaim | None) -> bool:
    return claim is None or claim.metadata.deletion_timestamp is not None


def _is_initialized(claim: NodeClaim) -> bool:
    return is_true(claim.status.conditions, nodeclaim.INITIALIZED)
