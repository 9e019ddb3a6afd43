"""What disruption decides: which claims go, why, and when to look again.

Every method (emptiness today; expiry, drift and consolidation beside it) answers the same three questions: which claims
are candidates, what command follows, and is it still valid right before it is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

EMPTY = "Empty"
DRIFTED = "Drifted"
UNDERUTILIZED = "Underutilized"


@dataclass(frozen=True, kw_only=True)
class Removal:
    """One claim to give up; the message says why, for a person."""

    claim: str
    node: str
    reason: str
    message: str


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

    removals: tuple[Removal, ...] = ()
    refused: tuple[Refused, ...] = ()
    look_again: datetime | None = None
