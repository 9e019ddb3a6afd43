"""What an event about machines comes down to: which instances, what is happening to them, and by when they go.

Each kind of event has its own module with the same three names: ``SOURCE``, ``DETAIL_TYPE`` and ``parse``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any


class Ask(Enum):
    """What a notice asks for."""

    GIVE_UP = "give up"
    """The machine goes at ``by``, or is gone: its pods must run elsewhere, now."""
    RISK = "risk"
    """The machine may be taken soon: what is done is the pool's choice."""
    MAINTENANCE = "maintenance"
    """The machine stops at ``by``, often days ahead: it is moved before, as budgets allow."""
    NOTHING = "nothing"
    """The event is of this kind but says nothing that concerns a node."""


class Basis(Enum):
    """What EC2 reports about the instance if the event is true (see ``event_verification``)."""

    SPOT_TAKEN = "a spot instance that EC2 takes back"
    SPOT = "a spot instance"
    RESERVED = "an instance in a capacity reservation"
    STOPPING = "an instance that no longer runs"
    UNASKED = "nothing that EC2 would be asked for"


TWO_MINUTES = timedelta(minutes=2)
"""How long before it takes a machine back EC2 says so."""
SHORT_USE = timedelta(minutes=5)
"""How long a warning is worth following: as long as its queue keeps it. A machine that is gone is found by sweeps."""
LONG_USE = timedelta(minutes=15)
"""How long other events are."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One event, understood. ``reason`` is the Kubernetes event's, ``message`` is for a person.

    ``works`` says that pods run there until ``by``, as if nothing were; ``offering_gone`` that the instance's offering
    should not be asked for again for a while. A notice older than ``use`` says nothing about now. ``basis`` is what EC2
    can be asked about it.
    """

    instance_ids: tuple[str, ...]
    ask: Ask
    reason: str
    message: str
    basis: Basis
    by: datetime | None = None
    works: bool = True
    offering_gone: bool = False
    use: timedelta = SHORT_USE


class MalformedEventError(ValueError):
    """An event of a known kind that lacks what it must have; the text says what."""


Detail = dict[str, Any]
Parser = Callable[[Detail, datetime], Notice]
"""From an event's detail and its time."""


def reclaimed(instance: str, *, by: datetime, reason: str, message: str, basis: Basis) -> Notice:
    """EC2 takes the machine back at that moment, because it wants its kind for others: there is none left of it."""
    return Notice(
        instance_ids=(instance,),
        ask=Ask.GIVE_UP,
        reason=reason,
        message=message,
        basis=basis,
        by=by,
        offering_gone=True,
    )


def moment(detail: Detail, field: str, read: Callable[[str], datetime]) -> datetime | None:
    """A time that the detail may have; None: it has none. ``read`` raises ValueError for what is no time.

    Raises:
        MalformedEventError: it can't be read, or has no time zone.
    """
    said = detail.get(field)
    if said is None:
        return None
    try:
        found = read(str(said))
    except ValueError as error:
        raise MalformedEventError(f"detail.{field} is {said!r}, where a time is required") from error
    if found.tzinfo is None:
        raise MalformedEventError(f"detail.{field} is {said!r}, without a time zone")
    return found


def text(detail: Detail, field: str) -> str:
    """A text that the detail must have.

    Raises:
        MalformedEventError: it is missing, empty or no text.
    """
    value = detail.get(field)
    if not isinstance(value, str) or not value:
        raise MalformedEventError(f"detail.{field} is {value!r}, where a text is required")
    return value
