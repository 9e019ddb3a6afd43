"""What disruption decides: which nodes go together, what replaces them, why, and when to look again.

Every method (emptiness, expiration, drift, consolidation) answers the same three questions: which nodes are candidates,
what command follows, and is it still valid right before it is carried out. ``shared.disruption.methods`` lists them in
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from shared.scheduling.decision import PlannedClaim

EMPTY = "Empty"
DRIFTED = "Drifted"
EXPIRED = "Expired"
UNDERUTILIZED = "Underutilized"


@dataclass(frozen=True, kw_only=True)
class Removal:
    """One claim to give up; the message says why, for a person. ``pods`` are those that move (namespace/name)."""

    claim: str
    node: str
    reason: str
    message: str
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Action:
    """Claims that go together, once all that replaces them is initialized; without replacements they go at once.

    ``savings`` is USD per hour (negative: it costs), ``forced`` an action that waits for nothing and nobody.
    """

    removals: tuple[Removal, ...]
    replacements: tuple[PlannedClaim, ...] = ()
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
    def moved(self) -> int:
        """How many pods have to move."""
        return sum(len(r.pods) for r in self.removals)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A claim that could go but may not, and what stands in the way."""

    claim: str
    node: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to do now; ``look_again`` is when the next claim's time is up, None when nothing is waiting."""

    actions: tuple[Action, ...] = ()
    refused: tuple[Refused, ...] = ()
    look_again: datetime | None = None
