"""The room record: what has been done to make room on a node, in an annotation of the node.

It says when room was made for which pod, so that a pod that gets no room isn't given up on too late; until when an
invocation evicts pods, so that no other does; and since when the node is cordoned, so that it is uncordoned even if the
invocation died. A record that can't be read counts as empty.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import decode_annotation
from shared.base.struct import WireStruct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ANNOTATION = "tenon.sh/room-record"
"""Annotation on a Node."""
WINDOW = timedelta(minutes=10)
MAX_ATTEMPTS = 3
"""How often room is made for a pod within :data:`WINDOW`."""
EVICTING_TIMEOUT = timedelta(seconds=30)
"""When an invocation that evicts has died: its evictions begin within 10 s, and end with the client's time-out."""
CORDON_LIMIT = timedelta(minutes=2)
"""How long a node is cordoned at most while its pods terminate."""


class RoomRecord(WireStruct, kw_only=True, omit_defaults=True):
    """``attempts`` are by the uid of the pod that room was made for."""

    attempts: dict[str, list[datetime]] = {}
    evicting_until: datetime | None = None
    cordoned_since: datetime | None = None

    def is_exhausted(self, uid: str, *, now: datetime) -> bool:
        """Whether room was made for the pod so often that it isn't tried again now."""
        return sum(now - at < WINDOW for at in self.attempts.get(uid, ())) >= MAX_ATTEMPTS

    def is_evicting(self, *, now: datetime) -> bool:
        """Whether an invocation is evicting pods of the node."""
        return self.evicting_until is not None and now < self.evicting_until

    def with_attempt(self, uids: Iterable[str], *, now: datetime) -> RoomRecord:
        """The record with an attempt for each of these pods, without attempts that the window has passed."""
        attempts = {
            uid: recent for uid, times in self.attempts.items() if (recent := [at for at in times if now - at < WINDOW])
        }
        for uid in uids:
            attempts[uid] = [*attempts.get(uid, ()), now]
        return with_fields(self, attempts=attempts)


def room_record(annotations: Mapping[str, str]) -> RoomRecord:
    """The record in a node's annotations; an empty one if there is none or it can't be read."""
    try:
        return decode_annotation(annotations.get(ANNOTATION, "{}"), RoomRecord)
    except msgspec.DecodeError:
        return RoomRecord()


def encoded(record: RoomRecord) -> str | None:
    """The annotation's value; None for an empty record, which needs no annotation."""
    return msgspec.json.encode(record).decode() if record != RoomRecord() else None
