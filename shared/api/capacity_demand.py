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
from shared.api.duration import DurationError, parse_duration
from shared.api.time_windows import EXAMPLES, TimeWindow, WindowError, parse_window
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime, timedelta

_LINEAR = re.compile(r"\d{1,9}")
_STEP = re.compile(r"(\d{1,9}) *: *(\d{1,9})")


class DemandError(ValueError):
    """An annotation's value can't be used; the message names the value and what is allowed."""


class Window(Struct, kw_only=True):
    """A time, again and again, in which chunks are wanted; ``chunks`` None: all of the spec's."""

    time: TimeWindow
    text: str
    chunks: int | None = None

    def is_open(self, now: datetime) -> bool:
        """Whether ``now`` is in the window; its end is not."""
        return self.time.is_open(now)

    def opens_after(self, now: datetime) -> datetime | None:
        """When the window opens next (UTC)."""
        return self.time.opens_after(now)


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
        raise DemandError(f"is empty; allowed is one window in each line, such as {EXAMPLES}")
    return tuple(_window(line) for line in lines if line)


def _window(line: str) -> Window:
    time, _, keep = line.partition(" keep ")
    if keep and not _LINEAR.fullmatch(keep.strip()):
        raise DemandError(f'"{line}" is no window; allowed after keep is a number')
    try:
        window = parse_window(time.strip())
    except WindowError as error:
        raise DemandError(str(error)) from error
    return Window(text=line, time=window, chunks=int(keep) if keep else None)


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
