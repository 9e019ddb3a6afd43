"""What is under way: claims that go when their replacements are up, and what to do about them now.

It stands on the claims that go: the condition ``DisruptionReason`` and an annotation that names the replacements. They
are marked before anything else is done, so a run may die between any two steps: the next one finds the marks, and
either all that was asked for, which it goes on with, or not, and then everything is put back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from shared.api import nodeclaim
from shared.api.meta import is_true, with_condition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shared.api.nodeclaim import NodeClaim

QUEUE_ANNOTATION = "tenon.sh/disruption"
"""Annotation on a NodeClaim that is to go: a :class:`QueueEntry`."""
REPLACEMENT_TIMEOUT = timedelta(minutes=20)
"""How long replacements may take; the liveness of claims gives them up before that."""


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One action on one of its claims: all of them carry the same ``id`` and replacements (names of claims)."""

    id: str
    reason: str
    since: datetime
    message: str = ""
    replacements: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """A claim to put back as it was, and the replacements that came of it, which nobody needs now."""

    claim: NodeClaim
    why: str
    replacements: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QueueStatus:
    """What to do: claims to give up now, claims to put back; ``waiting`` says whether anything is waited for."""

    completed: tuple[tuple[NodeClaim, QueueEntry], ...] = ()
    rollbacks: tuple[Rollback, ...] = ()
    waiting: bool = False


def queue_entry(claim: NodeClaim) -> QueueEntry | None:
    """The claim's mark; None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode(claim.metadata.annotations.get(QUEUE_ANNOTATION, ""), type=QueueEntry)
    except msgspec.DecodeError:
        return None


def is_queued(claim: NodeClaim) -> bool:
    """Whether the claim is to go, and hasn't been deleted yet."""
    return claim.metadata.deletion_timestamp is None and (
        QUEUE_ANNOTATION in claim.metadata.annotations or is_true(claim.status.conditions, nodeclaim.DISRUPTION_REASON)
    )


def is_replaced(claim: NodeClaim, there: Collection[str]) -> bool:
    """Whether all that replaces the claim is there (names of claims), so that it only waits for its end."""
    mark = queue_entry(claim)
    return mark is not None and bool(mark.replacements) and set(mark.replacements) <= set(there)


def replacement_names(claims: Iterable[NodeClaim]) -> frozenset[str]:
    """Claims and nodes that replace others which are still there: pods are about to come to them."""
    claims = tuple(claims)
    names = {name for c in claims if (mark := queue_entry(c)) is not None for name in mark.replacements}
    return frozenset(names | {c.status.node_name for c in claims if c.name in names and c.status.node_name})


def with_queue_entry(claim: NodeClaim, mark: QueueEntry) -> NodeClaim:
    """The claim with its mark."""
    annotations = {**claim.metadata.annotations, QUEUE_ANNOTATION: msgspec.json.encode(mark).decode()}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def with_disruption_condition(claim: NodeClaim, mark: QueueEntry, *, now: datetime) -> NodeClaim:
    """The claim with its condition: the part of the mark that Karpenter's users know."""
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.DISRUPTION_REASON,
        status=True,
        reason=mark.reason,
        message=mark.message,
        now=now,
    )
    return replace(claim, status=replace(claim.status, conditions=conditions))


def without_queue_entry(claim: NodeClaim) -> NodeClaim:
    """The claim without a mark."""
    annotations = {k: v for k, v in claim.metadata.annotations.items() if k != QUEUE_ANNOTATION}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def without_disruption_condition(claim: NodeClaim) -> NodeClaim:
    """The claim without the condition."""
    conditions = [c for c in claim.status.conditions if c.type != nodeclaim.DISRUPTION_REASON]
    return replace(claim, status=replace(claim.status, conditions=conditions))


def queue_status(claims: Iterable[NodeClaim], *, now: datetime) -> QueueStatus:
    """What to do about everything that is under way."""
    by_name = {c.name: c for c in claims}
    finish: list[tuple[NodeClaim, QueueEntry]] = []
    undo: list[Rollback] = []
    waiting = False
    for claim in sorted((c for c in by_name.values() if is_queued(c)), key=lambda c: c.name):
        mark = queue_entry(claim)
        if mark is None or not mark.replacements:
            # It died before it was carried out; whether it should be is decided anew.
            undo.append(Rollback(claim=claim, why="it was not carried through"))
            continue
        failed = next((name for name in mark.replacements if _is_lost(by_name.get(name))), None)
        if failed is None and now - mark.since > REPLACEMENT_TIMEOUT:
            failed = next((n for n in mark.replacements if not _is_up(by_name[n])), None)
        if failed is not None:
            why = f"replacement {failed} did not come up"
            undo.append(Rollback(claim=claim, why=why, replacements=tuple(mark.replacements)))
        elif all(_is_up(by_name[name]) for name in mark.replacements):
            finish.append((claim, mark))
        else:
            waiting = True
    return QueueStatus(completed=tuple(finish), rollbacks=tuple(undo), waiting=waiting)


def _is_lost(claim: NodeClaim | None) -> bool:
    return claim is None or claim.metadata.deletion_timestamp is not None


def _is_up(claim: NodeClaim) -> bool:
    return is_true(claim.status.conditions, nodeclaim.INITIALIZED)
