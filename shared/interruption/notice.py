"""What an event about machines comes down to: which instances, what is happening to them, and what is asked for.

Each kind of event has its own module with the same three names: ``SOURCE``, ``DETAIL_TYPE`` and ``parse``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Ask(Enum):
    """What a notice asks for."""

    DRAIN = "drain"
    """The machine goes, or is gone: its pods must run elsewhere."""
    TELL = "tell"
    """Nothing has to be done; people may want to know."""
    NOTHING = "nothing"
    """The event is of this kind but says nothing that concerns a node."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One event, understood. ``reason`` is the Kubernetes event's, ``message`` is for a person.

    ``offering_gone`` says that the instance's offering should not be asked for again for a while.
    """

    instance_ids: tuple[str, ...]
    ask: Ask
    reason: str
    message: str
    offering_gone: bool = False


class MalformedEventError(ValueError):
    """An event of a known kind that lacks what it must have; the text says what."""


Detail = dict[str, Any]
Parser = Callable[[Detail], Notice]


def text(detail: Detail, field: str) -> str:
    """A text that the detail must have.

    Raises:
        MalformedEventError: it is missing, empty or no text.
    """
    value = detail.get(field)
    if not isinstance(value, str) or not value:
        raise MalformedEventError(f"detail.{field} is {value!r}, where a text is required")
    return value
