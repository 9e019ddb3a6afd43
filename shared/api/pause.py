"""Pauses: by annotations, of the whole cluster (on its Lease) or of a NodePool (on the NodePool). Pure.

While a cluster or a NodePool is paused, nothing is launched for it and nothing of it is removed, but for what an
interruption forces. A value that can't be read counts as a pause without an end: an operator who wrote it wants Tenon
to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.labels import PAUSED, PAUSED_AT, PAUSED_BY, PAUSED_REASON
from shared.api.meta import parse_timestamp
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from shared.api.nodepool import NodePool

THE_CLUSTER = "the cluster"
BY_TENON = "Tenon"
"""Who set a pause that is renewed each minute while its reason lasts."""


class Pause(Struct, kw_only=True):
    """A pause of ``subject``; ``since``, ``by`` and ``reason`` as far as they are known, ``until`` None without an end.

    ``problem`` says what can't be read of it.
    """

    subject: str = THE_CLUSTER
    since: datetime | None = None
    by: str = ""
    reason: str = ""
    until: datetime | None = None
    problem: str = ""

    @property
    def message(self) -> str:
        """One sentence for users: since when, by whom, until when, and why.

        The end of a renewed pause moves each minute; it isn't said, so that the sentence, and its event, stay the same.
        """
        parts = [f"{self.subject} is paused"]
        if self.since is not None:
            parts.append(f"since {_text(self.since)}")
        if self.by:
            parts.append(f"by {self.by}")
        parts.append(self._end)
        details = "; ".join(text for text in (self.reason, self.problem) if text)
        return " ".join(parts) + (f": {details}" if details else "")

    @property
    def _end(self) -> str:
        if self.by == BY_TENON:
            return "while this lasts"
        return f"until {_text(self.until)}" if self.until is not None else "until it is resumed"


def read_pause(annotations: Mapping[str, str], *, now: datetime, subject: str = THE_CLUSTER) -> Pause | None:
    """The pause that the annotations say; None without one, or if it has ended.

    >>> from datetime import UTC, datetime
    >>> now = datetime(2026, 11, 26, 10, tzinfo=UTC)
    >>> annotations = {"tenon.sh/paused": "2026-11-26T12:00:00Z", "tenon.sh/paused-reason": "incident"}
    >>> read_pause(annotations, now=now).message
    'the cluster is paused until 2026-11-26 12:00:00 UTC: incident'
    """
    value = annotations.get(PAUSED, "false").strip()
    if value.lower() == "false":
        return None
    until, problem = None, ""
    if value.lower() != "true":
        until = parse_timestamp(value)
        if until is None:
            problem = f'annotation {PAUSED} is "{value}", neither true, false nor an RFC 3339 time, and counts as true'
        elif until <= now:
            return None
    return Pause(
        subject=subject,
        since=parse_timestamp(annotations.get(PAUSED_AT, "")),
        by=annotations.get(PAUSED_BY, ""),
        reason=annotations.get(PAUSED_REASON, ""),
        until=until,
        problem=problem,
    )


def paused_pools(pools: Iterable[NodePool], cluster: Pause | None, *, now: datetime) -> dict[str, Pause]:
    """The pauses of these NodePools by name: the cluster's, or their own."""
    pauses = {p.name: cluster or read_pause(p.metadata.annotations, now=now, subject=_subject(p)) for p in pools}
    return {name: pause for name, pause in pauses.items() if pause is not None}


def pause_annotations(*, since: datetime, until: datetime | None, by: str, reason: str) -> dict[str, str | None]:
    """The annotations of a pause; None removes one that an earlier pause left."""
    return {
        PAUSED: until.isoformat(timespec="seconds") if until is not None else "true",
        PAUSED_AT: since.isoformat(timespec="seconds"),
        PAUSED_BY: by or None,
        PAUSED_REASON: reason or None,
    }


NO_PAUSE: dict[str, str | None] = dict.fromkeys((PAUSED, PAUSED_AT, PAUSED_BY, PAUSED_REASON))
"""The change of annotations that ends a pause."""


def _subject(pool: NodePool) -> str:
    return f"{pool.kind} {pool.name}"


def _text(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
