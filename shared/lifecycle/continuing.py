"""When a drain is looked at again, and by whom: one chain of looks a claim, however many hints arrive.

The time of the next look stands on the claim. A hint that comes before it is surplus; one that comes after it looks,
and moves the time on if nobody else has since, so of two that come together one goes on and the other ends. A chain
that was lost is taken up by whatever hint comes after that time. Only the relay's word that what held the drain has
changed is followed before its time, if the drain has begun at all: such a look leaves the chain alone, unless it has
reason to look again earlier.
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

NEXT_LOOK = "tenon.sh/next-look"
"""Annotation on a NodeClaim that is being deleted: when its drain goes on (RFC 3339)."""

_SLACK = timedelta(seconds=0.5)
_SOON = timedelta(seconds=1)
_LATE = timedelta(seconds=30)
_LONGEST = timedelta(minutes=15)
"""SQS keeps no message back for longer."""
_SHARE = 20


class Awaited(Enum):
    """What a drain waits for."""

    PODS = "pods"
    """Pods are on their way out."""
    PLACE = "place"
    """Pods stay until there is a place for them, which ends this wait before its time."""
    INSTANCE = "instance"
    """The instance is shutting down."""
    VOLUMES = "volumes"
    """No pod is left, and volumes are being detached."""
    NOBODY = "nobody"
    """Nothing moves: a budget or a pod's protection holds."""


def next_look(annotations: Mapping[str, str]) -> datetime | None:
    """When the claim of these annotations is looked at next; None when that isn't known."""
    try:
        moment = datetime.fromisoformat(annotations.get(NEXT_LOOK, ""))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def is_due(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether a hint that arrives now is to be followed."""
    moment = next_look(claim.metadata.annotations)
    return moment is None or now >= moment - _SLACK


def is_planned(claim: NodeClaim, *, until: datetime, now: datetime) -> bool:
    """Whether the chain goes on by itself until that moment, so that it needs no other look."""
    moment = next_look(claim.metadata.annotations)
    return moment is not None and not is_due(claim, now=now) and moment <= until


def is_overdue(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether nobody has looked although it was time: the chain of looks has broken, or never began."""
    return is_due(claim, now=now - _LATE)


def delay(claim: NodeClaim, awaited: Awaited, *, latest: datetime | None, now: datetime) -> timedelta:
    """How long to wait for the next look, in whole seconds; never past the moment ``latest``.

    A second or few while pods move, a few for an instance; while something holds, a twentieth of the time waited so
    far, a quarter of an hour at most, so that two days of waiting cost some three hundred looks. Volumes are waited for
    since the last pod went, however long that took.
    """
    if awaited is Awaited.INSTANCE:
        wait = timedelta(seconds=3)
    elif awaited is Awaited.PLACE:
        wait = timedelta(seconds=10)
    else:
        begun = claim.metadata.deletion_timestamp
        if awaited is Awaited.VOLUMES:
            drained = condition(claim.status.conditions, nodeclaim.DRAINED)
            begun = drained.last_transition_time if drained is not None and drained.status == "True" else now
        waited = now - (begun or now)
        longest = timedelta(seconds=5) if awaited is Awaited.PODS else _LONGEST
        wait = min(max(timedelta(seconds=waited // timedelta(seconds=_SHARE)), _SOON), longest)
    return wait if latest is None or latest <= now else min(wait, latest - now)
