"""Parses the body of an EventBridge event into a notice, with the parser for its source and detail-type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from shared.base.hints import decode_json
from shared.base.struct import Struct, WireStruct
from shared.interruptions import (
    capacity_reservation_interruption,
    lifecycle_action,
    rebalance_recommendation,
    scheduled_change,
    spot_interruption,
    state_change,
)
from shared.interruptions.notice import MalformedEventError, Notice, Parser, checked_time

Parsers = Mapping[tuple[str, str], Parser]
"""By source and detail-type."""
OF_INSTANCES: Parsers = {
    (module.SOURCE, module.DETAIL_TYPE): module.parse
    for module in (
        capacity_reservation_interruption,
        rebalance_recommendation,
        scheduled_change,
        spot_interruption,
        state_change,
    )
}
"""The events about instances that Tenon has launched."""
OF_GROUPS: Parsers = {
    (module.SOURCE, module.DETAIL_TYPE): module.parse
    for module in (lifecycle_action, scheduled_change, spot_interruption)
}
"""The events about instances of node groups."""


class _Envelope(WireStruct, rename={"detail_type": "detail-type"}):
    source: str
    detail_type: str
    time: datetime
    detail: dict[str, Any]


class Event(Struct, kw_only=True):
    """A notice, and the time of the event."""

    notice: Notice
    time: datetime


def parse(body: str, parsers: Parsers = OF_INSTANCES) -> Event:
    """The event in a message body.

    Raises:
        MalformedEventError: the body isn't an EventBridge event, its type is unknown, or a required field is missing.
    """
    try:
        envelope = decode_json(body, _Envelope)
    except msgspec.MsgspecError as error:
        raise MalformedEventError(f"not an EventBridge event: {error}") from error
    parser = parsers.get((envelope.source, envelope.detail_type))
    if parser is None:
        raise MalformedEventError(
            f'not an interruption event: source "{envelope.source}", detail-type "{envelope.detail_type}"'
        )
    time = checked_time("time", envelope.time)
    try:
        return Event(notice=parser(envelope.detail, time), time=time)
    except RecursionError as error:
        raise MalformedEventError("its detail is nested too deeply") from error
