"""The termination deadline of a NodeClaim whose instance is interrupted: shortly before the interruption.

The deadline is Karpenter's own annotation on the NodeClaim, which draining honours: pods with a long grace period get
what remains of it, other pods are evicted first. An earlier deadline is never moved back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import parse_duration
from shared.api.meta import is_true, parse_timestamp

if TYPE_CHECKING:
    from shared.api.nodeclaim import NodeClaim

MARGIN = timedelta(seconds=15)
"""Time before the interruption in which volumes are detached after the last pod has ended."""


def earlier_deadline(claim: NodeClaim, effective_at: datetime, *, now: datetime) -> datetime | None:
    """The deadline to set on a NodeClaim whose instance is interrupted then; None if the current one isn't later.

    A terminationGracePeriod that ends sooner is honoured.
    """
    deadline = effective_at - MARGIN
    text = claim.spec.termination_grace_period
    grace_period = parse_duration(text) if text is not None else None
    if grace_period is not None:
        deadline = min(deadline, (claim.metadata.deletion_timestamp or now) + grace_period)
    current = current_deadline(claim)
    return None if current is not None and current <= deadline else deadline


def current_deadline(claim: NodeClaim) -> datetime | None:
    """The deadline on the NodeClaim; None if there is none or it is invalid."""
    return parse_timestamp(claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP, ""))


def is_terminated_by_tenon(claim: NodeClaim) -> bool:
    """Whether Tenon terminated the instance itself, so that events about it are expected."""
    return claim.metadata.deletion_timestamp is not None and is_true(
        claim.status.conditions, nodeclaim.INSTANCE_TERMINATING
    )
