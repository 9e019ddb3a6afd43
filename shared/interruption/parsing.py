"""From an EventBridge event to a notice: finds the parser by source and detail-type."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from shared.interruption import rebalance, reservation, scheduled_change, spot_warning, state_change
from shared.interruption.notice import MalformedEventError, Notice, Parser

_PARSERS: dict[tuple[str, str], Parser] = {
    (module.SOURCE, module.DETAIL_TYPE): module.parse
    for module in (spot_warning, rebalance, state_change, scheduled_change, reservation)
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
