"""What disruption decides: which nodes go together, what replaces them, why, and when to look again.

Every method (emptiness, static pools, expiration, drift, consolidation) answers the same three questions: which nodes
are candidates, what command follows, and is it still valid right before it is carried out. They are listed in order in
``shared.disruption.methods``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from shared.scheduling.decision import PlannedNodeClaim

EMPTY = "Empty"
DRIFTED = "Drifted"
EXPIRED = "Expired"
UNDERUTILIZED = "Underutilized"
SURPLUS = "Surplus"


@dataclass(frozen=True, kw_only=True)
class Removal:
    """One claim to give up; the message says why, for a person. ``pods`` are those that move (namespace/name)."""

    claim: str
    node: str
    reason: str
    message: str
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Command:
    """Claims that go together, once all that replaces them is initialized; without replacements they go at once.

    ``savings`` is USD per hour (negative: it costs), ``forced`` an action that waits for nothing and nobody.
    """

    removals: tuple[Removal, ...]
    replacements: tuple[PlannedNodeClaim, ...] = ()
    savings: float = 0.0
    forced: bool = False

    @property
    def reason(self) -> str:
        """The reason, which is the same for all its claims."""
        return self.removals[0].reason

    @property
    def message(self) -> str:
        """Why, for a person."""
        return self.removals[0].message

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that go."""
        return tuple(r.node for r in self.removals)

    @property
    def pod_count(self) -> int:
        """How many pods have to move."""
        return sum(len(r.pods) for r in self.removals)


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """What stands in the way, as a sentence for a person, and who: kind and name, empty where it just doesn't pay."""

    message: str
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class BlockedCandidate:
    """A claim that could go but may not.

    ``savings`` is USD per hour that its going would save (None: not known), ``pods`` how many would move.
    """

    claim: str
    node: str
    reason: str
    blocker: Blocker
    savings: float | None = None
    pods: int = 0

    @property
    def message(self) -> str:
        """Why not, for a person."""
        return self.blocker.message


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """What to do now; ``look_again`` is when the next claim's time is up, None when nothing is waiting."""

    commands: tuple[Command, ...] = ()
    blocked: tuple[BlockedCandidate, ...] = ()
    requeue_at: datetime | None = None
