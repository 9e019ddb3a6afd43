"""A notice: what an event announces about instances, which action it requires, and when it takes effect.

Each event type has its own module with the same three names: ``SOURCE``, ``DETAIL_TYPE`` and ``parse``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from shared.api.meta import EARLIEST, LATEST
from shared.base.struct import Struct


class Action(Enum):
    """The action that a notice requires."""

    CORDON_AND_DRAIN = "cordon and drain"
    """The instance is interrupted at ``effective_at``, or has ended: its pods are replaced and evicted now."""
    APPLY_REBALANCE_POLICY = "apply the rebalance policy"
    """The instance is at a higher risk of interruption: its NodePool's policy decides."""
    REPLACE_BEFORE_MAINTENANCE = "replace before maintenance"
    """Maintenance starts at ``effective_at``, often in days: the node is replaced before, as budgets allow."""
    NO_ACTION = "no action"
    """The event doesn't affect a node."""


class Evidence(Enum):
    """What EC2 reports about the instance if the event is true; see ``event_verification``."""

    SPOT_INTERRUPTED = "a spot instance that is being interrupted"
    SPOT = "a spot instance"
    RESERVED = "an instance in a capacity reservation"
    NOT_RUNNING = "an instance that isn't running"
    SCHEDULED = "an instance with a scheduled event"
    NONE = "nothing that could be verified"


TWO_MINUTES = timedelta(minutes=2)
"""How long before an interruption EC2 sends its warning."""
WARNING_VALIDITY = timedelta(minutes=5)
"""How long a warning is acted on: the retention of its queue. Sweeps find instances that have ended."""
VALIDITY = timedelta(minutes=15)
"""How long other events are acted on."""


class LifecycleAction(Struct, kw_only=True):
    """A lifecycle hook that waits for an instance, and the token by which its action is completed."""

    group: str
    hook: str
    token: str


class Notice(Struct, kw_only=True):
    """A parsed event. ``reason`` is the reason of the Kubernetes event, ``message`` its message.

    ``running`` says whether pods keep running on the instance until ``effective_at``; ``offering_unavailable`` whether
    its offering should not be requested for a while. A notice older than ``valid_for`` is ignored. ``evidence`` is what
    EC2 can confirm. ``lifecycle_action`` is the one that waits until the instance's node is drained.
    """

    instance_ids: tuple[str, ...]
    action: Action
    reason: str
    message: str
    evidence: Evidence
    effective_at: datetime | None = None
    running: bool = True
    offering_unavailable: bool = False
    valid_for: timedelta = WARNING_VALIDITY
    lifecycle_action: LifecycleAction | None = None


class MalformedEventError(ValueError):
    """An event of a known type that lacks a required field; the text names the field."""


Detail = dict[str, Any]
Parser = Callable[[Detail, datetime], Notice]
"""Parses an event's detail; the second argument is the event's time."""


def interruption_notice(
    instance_id: str, *, effective_at: datetime, reason: str, message: str, evidence: Evidence
) -> Notice:
    """The notice that EC2 reclaims the instance's capacity at that time, so its offering is unavailable too."""
    return Notice(
        instance_ids=(instance_id,),
        action=Action.CORDON_AND_DRAIN,
        reason=reason,
        message=message,
        evidence=evidence,
        effective_at=effective_at,
        offering_unavailable=True,
    )


def optional_time(detail: Detail, field: str, parse: Callable[[str], datetime]) -> datetime | None:
    """A time in the detail, in UTC; None if the field is missing. ``parse`` raises ValueError for an invalid time.

    Raises:
        MalformedEventError: the time is invalid, has no time zone, or is far from the present.
    """
    value = detail.get(field)
    if value is None:
        return None
    try:
        time = parse(str(value))
    except (ValueError, OverflowError) as error:
        raise MalformedEventError(f"detail.{field} is {value!r}, must be a time") from error
    return checked_time(f"detail.{field}", time)


def checked_time(field: str, time: datetime) -> datetime:
    """The time in UTC.

    Raises:
        MalformedEventError: it has no time zone, or is so far from the present that nothing of AWS can have sent it.
    """
    if time.tzinfo is None:
        raise MalformedEventError(f"{field} has no time zone")
    if not EARLIEST <= time <= LATEST:
        raise MalformedEventError(f"{field} is {time.isoformat()}, must be between {EARLIEST:%Y} and {LATEST:%Y}")
    return time.astimezone(UTC)


def required_text(detail: Detail, field: str) -> str:
    """A text in the detail.

    Raises:
        MalformedEventError: the field is missing, empty or not a text.
    """
    value = detail.get(field)
    if not isinstance(value, str) or not value:
        raise MalformedEventError(f"detail.{field} is {value!r}, must be a non-empty text")
    return value
