"""By when a machine that goes must be empty: a little before it goes, and never later than was promised before.

The deadline stands on the claim (Karpenter's own annotation, which draining honours), so whoever drains keeps it: pods
with a long grace period get of it what is left, everything else leaves by eviction first.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import parse_duration
from shared.api.meta import is_true

if TYPE_CHECKING:
    from shared.api.nodeclaim import NodeClaim

MARGIN = timedelta(seconds=15)
"""Before EC2 takes the machine, its pods are gone and their volumes are let go."""


def stamp(claim: NodeClaim, by: datetime, *, now: datetime) -> datetime | None:
    """The deadline to write on a claim whose machine goes at ``by``; None: what it has already is no later.

    A terminationGracePeriod that ends sooner is kept.
    """
    deadline = by - MARGIN
    grace = claim.spec.termination_grace_period
    length = parse_duration(grace) if grace is not None else None
    if length is not None:
        deadline = min(deadline, (claim.metadata.deletion_timestamp or now) + length)
    before = stamped(claim)
    return None if before is not None and before <= deadline else deadline


def stamped(claim: NodeClaim) -> datetime | None:
    """The deadline that stands on the claim; None: none, or none that can be read."""
    try:
        moment = datetime.fromisoformat(claim.metadata.annotations[names.TERMINATION_TIMESTAMP])
    except (KeyError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def is_ours(claim: NodeClaim) -> bool:
    """Whether Tenon terminated the instance itself: what EC2 says of that is no news."""
    return claim.metadata.deletion_timestamp is not None and is_true(
        claim.status.conditions, nodeclaim.INSTANCE_TERMINATING
    )
