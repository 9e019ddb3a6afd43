"""When a drain is looked at again, and by whom: one chain of looks a claim, however many hints arrive.

The time of the next look stands on the claim. A hint that comes before it is surplus; one that comes after it looks,
and moves the time on if nobody else has since, so of two that come together one goes on and the other ends. A chain
that was lost is taken up by whatever hint comes after that time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.api.nodeclaim import NodeClaim

NEXT_LOOK = "tenon.sh/next-look"
"""Annotation on a NodeClaim that is being deleted: when its drain goes on (RFC 3339)."""

SOON = timedelta(seconds=1)
_SLACK = timedelta(seconds=0.5)
_LONGEST = timedelta(minutes=5)
_SHARE = 20


def is_due(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether a hint that arrives now is to be followed."""
    stamped = claim.metadata.annotations.get(NEXT_LOOK)
    if stamped is None:
        return True
    try:
        moment = datetime.fromisoformat(stamped)
    except ValueError:
        return True
    return moment.tzinfo is None or now >= moment - _SLACK


def delay(claim: NodeClaim, *, moving: bool, end: datetime | None, now: datetime) -> timedelta:
    """How long to wait for the next look.

    A second or few while something moves; a twentieth of the time waited so far, five minutes at most, while something
    holds; and never past the claim's deadline.
    """
    waited = now - (claim.metadata.deletion_timestamp or now)
    wait = min(max(waited / _SHARE, SOON), timedelta(seconds=5) if moving else _LONGEST)
    return wait if end is None or end <= now else min(wait, end - now)
