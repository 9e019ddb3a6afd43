"""Windows of time that come again and again: ``0 9 * * mon-fri until 0 18 * * mon-fri in Asia/Seoul``.

They are a part of annotations: of CapacityBuffers, and of NodePools. A window begins at the times of a cron schedule,
and ends at those of another or after a duration, in UTC unless a zone is named.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api.cron import CronError, Schedule, parse_cron
from shared.api.duration import DurationError, parse_duration
from shared.base.struct import Struct

if TYPE_CHECKING:
    from datetime import datetime, timedelta, tzinfo

_WINDOW = re.compile(r"(?P<start>.+?) +(?:for +(?P<duration>\S+)|until +(?P<end>.+?))(?: +in +(?P<zone>\S+))?")
EXAMPLES = '"0 9 * * mon-fri until 0 18 * * mon-fri in Asia/Seoul" or "0 9 * * * for 9h"'

MAX_LENGTH = 1000
"""Of longer texts no regular expression is tried: that takes time by the square of the length."""
_SHOWN = 80


class WindowError(ValueError):
    """A text is no window; the message names it and what is allowed."""


class TimeWindow(Struct, kw_only=True):
    """A time, again and again: from ``start`` until ``end``, or for ``duration``."""

    text: str
    start: Schedule
    zone: tzinfo
    end: Schedule | None = None
    duration: timedelta | None = None

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


def parse_window(text: str) -> TimeWindow:
    """The window of a text.

    >>> parse_window("0 22 * * * for 2h in Europe/Berlin").duration
    datetime.timedelta(seconds=7200)

    Raises:
        WindowError: the text is no window.
    """
    if len(text) > MAX_LENGTH:
        raise WindowError(f'"{text[:_SHOWN]}…" is no window: it has more than {MAX_LENGTH} characters')
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise WindowError(f'"{text}" is no window; allowed is {EXAMPLES}')
    try:
        start = parse_cron(match["start"])
        end = parse_cron(match["end"]) if match["end"] else None
        duration = parse_duration(match["duration"]) if match["duration"] else None
    except (CronError, DurationError) as error:
        raise WindowError(f'"{text}" is no window: {error}') from error
    if end is None and not duration:
        raise WindowError(f'"{text}" is no window: its duration must be longer than 0s')
    if end == start:
        raise WindowError(f'"{text}" is no window: it ends when it begins')
    return TimeWindow(text=text, start=start, end=end, duration=duration, zone=_zone(match["zone"] or "UTC"))


def _zone(name: str) -> tzinfo:
    # Imported here: few objects have a window.
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise WindowError(f'"{name}" is no time zone; allowed are names such as Asia/Seoul or UTC') from error
