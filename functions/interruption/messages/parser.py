"""From an EventBridge event to a notice: finds the parser by source and detail-type."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from functions.interruption.messages import (
    capacity_reservation_interruption,
    rebalance_recommendation,
    scheduled_change,
    spot_interruption,
    state_change,
)
from functions.interruption.messages.notice import MalformedEventError, Notice, Parser

_PARSERS: dict[tuple[str, str], Parser] = {
    (module.SOURCE, module.DETAIL_TYPE): module.parse
    for module in (
        capacity_reservation_interruption,
        rebalance_recommendation,
        scheduled_change,
        spot_interruption,
        state_change,
    )
}


class _Event(msgspec.Struct, frozen=True, rename={"detail_type": "detail-type"}):
    source: str
    detail_type: str
    time: datetime
    detail: dict[str, Any]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A notice, and when EC2 gave it."""

    notice: Notice
    time: datetime


def parse(body: str) -> Event:
    """The notice in a message body.

    Raises:
        MalformedEventError: not an event, of a kind nobody here knows, or without what its kind must have.
    """
    try:
        event = msgspec.json.decode(body, type=_Event)
    except msgspec.MsgspecError as error:
        raise MalformedEventError(f"not an EventBridge event: {error}") from error
    parser = _PARSERS.get((event.source, event.detail_type))
    if parser is None:
        raise MalformedEventError(f'no interruption event: source "{event.source}", detail-type "{event.detail_type}"')
    if event.time.tzinfo is None:
        raise MalformedEventError("time has no time zone")
    return Event(notice=parser(event.detail, event.time), time=event.time)
