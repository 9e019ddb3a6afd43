"""Disruption commands: which nodes are removed together, what replaces them, and why.

Every method (node repair, emptiness, static pools, expiration, drift, consolidation) answers the same three questions:
which nodes are candidates, what command follows, and is it still valid right before it is executed.
``shared.disruption.methods`` lists them in order.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.meta import EventReason, ObjectRef
    from shared.scheduling.decision import PlannedNodeClaim

EMPTY = "Empty"
DRIFTED = "Drifted"
EXPIRED = "Expired"
UNDERUTILIZED = "Underutilized"
UNHEALTHY = "Unhealthy"
SURPLUS = "Surplus"

REPLACE, REBOOT = "replace", "reboot"
"""What node repair does with a node."""

WARNING_INTERVAL = timedelta(minutes=15)


class Removal(Struct, kw_only=True):
    """One NodeClaim to delete. ``message`` says why, for users. ``pods`` are the keys (namespace/name) that move."""

    claim: str
    node: str
    reason: str
    message: str
    pods: tuple[str, ...] = ()


class Command(Struct, kw_only=True):
    """NodeClaims that are deleted together, once all replacements are initialized; at once without replacements.

    ``savings`` is USD per hour (negative: the command costs money). A ``forced`` command ignores blockers and isn't
    validated. ``grace_period`` bounds the drains, which the NodeClaims may bound too (None: only they do).
    ``repair_action`` is what node repair does (:mod:`shared.disruption.repair_policies`): a node that reboots stays.
    ``terminate_first`` says, in Karpenter's word, why the nodes go before their replacements come; empty otherwise.
    """

    removals: tuple[Removal, ...]
    replacements: tuple[PlannedNodeClaim, ...] = ()
    savings: float = 0.0
    forced: bool = False
    grace_period: timedelta | None = None
    repair_action: str = ""
    terminate_first: str = ""

    @property
    def reason(self) -> str:
        """The reason, which is the same for all removals."""
        return self.removals[0].reason

    @property
    def message(self) -> str:
        """Why, for users."""
        return self.removals[0].message

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that are removed."""
        return tuple(r.node for r in self.removals)

    @property
    def pod_count(self) -> int:
        """How many pods move."""
        return sum(len(r.pods) for r in self.removals)


class Blocker(Struct, kw_only=True):
    """What blocks a disruption: a message for users, and the blocking object (kind and name).

    ``by`` is empty where no object blocks it: the disruption just doesn't save enough.
    """

    message: str
    by: str = ""


class BlockedCandidate(Struct, kw_only=True):
    """A candidate that has a reason to be disrupted, but is blocked.

    ``savings`` is USD per hour that removing it would save (None: not known), ``pods`` how many would move.
    """

    claim: str
    node: str
    reason: str
    blocker: Blocker
    savings: float | None = None
    pods: int = 0

    @property
    def message(self) -> str:
        """Why it isn't disrupted, for users."""
        return self.blocker.message


class DisruptionWarning(Struct, kw_only=True):
    """An event of type Warning for users, at most once in :data:`WARNING_INTERVAL`."""

    ref: ObjectRef
    reason: EventReason
    message: str


class MethodResult(Struct, kw_only=True):
    """The commands to execute now, and the candidates that are blocked; ``warnings`` are events for users.

    ``requeue_at`` is when the next candidate becomes due (None: none is waiting). ``next_savings_at`` is when
    consolidation would find something at the earliest, in a cluster that doesn't change (None: it isn't known).
    """

    commands: tuple[Command, ...] = ()
    blocked: tuple[BlockedCandidate, ...] = ()
    warnings: tuple[DisruptionWarning, ...] = ()
    requeue_at: datetime | None = None
    next_savings_at: datetime | None = None
