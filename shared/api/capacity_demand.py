"""Annotations of a CapacityBuffer that say how many of its chunks are wanted at a time.

``tenon.sh/schedule`` has one window in each line: ``0 9 * * mon-fri until 0 18 * * mon-fri in Asia/Seoul``, or
``0 9 * * * for 9h``, in UTC unless a zone is named, and optionally ``keep 20``: fewer chunks than the spec's.
``tenon.sh/per-nodes`` and ``tenon.sh/per-cores`` are the two modes of the Cluster Proportional Autoscaler: linear
(``10``: a chunk for each ten, rounded up) or a ladder (``1:1, 10:2, 100:5``: from 10 on two chunks).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.cron import CronError, Schedule, parse_cron
from shared.api.duration import DurationError, parse_duration
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime, timedelta, tzinfo

_WINDOW = re.compile(
    r"(?P<start>.+?) +(?:for +(?P<duration>\S+)|until +(?P<end>.+?))"
    r"(?: +in +(?P<zone>\S+))?(?: +keep +(?P<keep>\d{1,9}))?"
)
_EXAMPLES = '"0 9 * * mon-fri until 0 18 * * mon-fri in Asia/Seoul" or "0 9 * * * for 9h"'
_LINEAR = re.compile(r"\d{1,9}")
_STEP = re.compile(r"(\d{1,9}) *: *(\d{1,9})")


class DemandError(ValueError):
    """An annotation's value can't be used; the message names the value and what is allowed."""


class Window(Struct, kw_only=True):
    """A time, again and again, in which chunks are wanted: until ``end``, or for ``duration``."""

    text: str
    start: Schedule
    zone: tzinfo
    end: Schedule | None = None
    duration: timedelta | None = None
    chunks: int | None = None
    """None: all of the spec's."""

    def is_open(self, now: datetime) -> bool:
        """Whether ``now`` is in the window; its end is not."""
        if self.duration is not None:
            return self.start.is_active(self.duration, now, self.zone)
        assert self.end is not None  # one of the two is given
        ends, begins = self.end.next_after(now, self.zone), self.opens_after(now)
        return ends is not None and (begins is None or ends < begins)

    def opens_after(self, now: datetime) -> datetime | None:
        """When the window opens next (UTC)."""
        return self.start.next_after(now, self.zone)


class Proportion(Struct):
    """Chunks by the number of nodes or cores: one for each ``per``, or the ladder's step."""

    per: int = 0
    steps: tuple[tuple[int, int], ...] = ()

    def chunks(self, size: int) -> int:
        """The chunks for that many nodes or cores. A ladder has none below its first step."""
        if self.per:
            return -(-size // self.per)
        return next((chunks for least, chunks in reversed(self.steps) if least <= size), 0)


def windows(text: str) -> tuple[Window, ...]:
    """The windows of ``tenon.sh/schedule``.

    Raises:
        DemandError: a line is no window.
    """
    lines = [line.strip() for line in text.splitlines()]
    if not any(lines):
        raise DemandError(f"is empty; allowed is one window in each line, such as {_EXAMPLES}")
    return tuple(_window(line) for line in lines if line)


def _window(line: str) -> Window:
    match = _WINDOW.fullmatch(line)
    if match is None:
        raise DemandError(f'"{line}" is no window; allowed is {_EXAMPLES}')
    try:
        start = parse_cron(match["start"])
        end = parse_cron(match["end"]) if match["end"] else None
        duration = parse_duration(match["duration"]) if match["duration"] else None
    except (CronError, DurationError) as error:
        raise DemandError(f'"{line}" is no window: {error}') from error
    if end is None and not duration:
        raise DemandError(f'"{line}" is no window: its duration must be longer than 0s')
    if end == start:
        raise DemandError(f'"{line}" is no window: it ends when it begins')
    keep = int(match["keep"]) if match["keep"] else None
    zone = _zone(match["zone"] or "UTC")
    return Window(text=line, start=start, end=end, duration=duration, zone=zone, chunks=keep)


def _zone(name: str) -> tzinfo:
    # Imported here: few buffers have a schedule.
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise DemandError(f'"{name}" is no time zone; allowed are names such as Asia/Seoul or UTC') from error


def proportion(text: str) -> Proportion:
    """The proportion of ``tenon.sh/per-nodes`` or ``tenon.sh/per-cores``.

    >>> proportion("10").chunks(12), proportion("1:1, 10:2, 100:5").chunks(12)
    (2, 2)

    Raises:
        DemandError: the text is neither linear nor a ladder.
    """
    stripped = text.strip()
    if _LINEAR.fullmatch(stripped) and int(stripped):
        return Proportion(per=int(stripped))
    steps = [_STEP.fullmatch(part.strip()) for part in stripped.split(",")]
    ladder = tuple((int(step[1]), int(step[2])) for step in steps if step is not None)
    rising = all(a < b for (a, _), (b, _) in pairwise(ladder))
    if len(ladder) < len(steps) or not rising:
        raise DemandError(
            f'"{text}" is no proportion; allowed is a number such as 10 (one chunk for each ten), '
            'or rising steps such as "1:1, 10:2, 100:5"'
        )
    return Proportion(steps=ladder)


def count(text: str) -> int:
    """The number of ``tenon.sh/min-chunks``.

    Raises:
        DemandError: the text is no such number.
    """
    if not _LINEAR.fullmatch(text.strip()):
        raise DemandError(f'"{text}" is no number; allowed is 0 or more')
    return int(text)


def lead_time(text: str) -> timedelta:
    """The duration of ``tenon.sh/lead-time``.

    Raises:
        DemandError: the text is no duration.
    """
    try:
        duration = parse_duration(text)
    except DurationError as error:
        raise DemandError(str(error)) from error
    if duration is None:
        raise DemandError(f'"{text}" is not allowed; allowed is a duration such as 5m')
    return duration


_PARSERS = {
    names.SCHEDULE: windows,
    names.LEAD_TIME: lead_time,
    names.PER_NODES: proportion,
    names.PER_CORES: proportion,
    names.MIN_CHUNKS: count,
}


def problems(annotations: Mapping[str, str]) -> Iterator[str]:
    """The annotations that can't be used, as sentences."""
    for name, parse in _PARSERS.items():
        if name in annotations:
            try:
                parse(annotations[name])
            except DemandError as error:
                yield f"metadata.annotations[{name}]: {error}"
