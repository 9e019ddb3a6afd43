"""Durations as Kubernetes and Karpenter write them: "30s", "1h30m", "720h", "Never".

Format: Go's time.ParseDuration.
"""

from __future__ import annotations

import functools
import re
from datetime import timedelta

NEVER = "Never"
_MAX_LENGTH = 100
"""Of longer texts no regular expression is tried: that takes time by the square of the length."""

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MICROSECONDS = {
    "ns": 0.001,
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
}


class DurationError(ValueError):
    """The text is not a duration; the message names it and what is allowed."""


@functools.lru_cache(maxsize=1024)
def parse_duration(text: str) -> timedelta | None:
    """The duration, or None for "Never".

    >>> parse_duration("1h30m"), parse_duration("Never")
    (datetime.timedelta(seconds=5400), None)

    Raises:
        DurationError: the text is neither.
    """
    if text == NEVER:
        return None
    if text == "0":
        return timedelta()
    if len(text) > _MAX_LENGTH:
        raise DurationError(f'"{text[:_MAX_LENGTH]}…" is too long a text for a duration')
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise DurationError(f'"{text}" is not a duration (such as 30s, 10m, 1h30m or {NEVER})')
    try:
        return timedelta(microseconds=sum(float(number) * _MICROSECONDS[unit] for number, unit in parts))
    except OverflowError as error:
        raise DurationError(f'"{text}" is too long a duration') from error


def duration_or_none(text: str | None) -> timedelta | None:
    """The duration; None for "Never", for None, and for text that is no duration.

    >>> duration_or_none("30s"), duration_or_none("soon")
    (datetime.timedelta(seconds=30), None)
    """
    try:
        return None if text is None else parse_duration(text)
    except DurationError:
        return None


def format_duration(duration: timedelta | None) -> str:
    """Go's form without zero units: "1h30m", "30s"; None is "Never".

    >>> format_duration(timedelta(minutes=90))
    '1h30m'
    """
    if duration is None:
        return NEVER
    seconds = int(duration.total_seconds())
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "") + (f"{seconds}s" if seconds else "")
    return text or "0s"
