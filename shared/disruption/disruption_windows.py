"""Disruption windows of a NodePool: the only times in which its nodes are disrupted voluntarily.

Budgets can only forbid: who wants an hour a week has to forbid all the others (kubernetes-sigs/karpenter, issue 2374).
The annotation says when it is allowed, a window in each line or separated by semicolons, for all reasons or for those
that it names: ``0 10 * * * for 10m in Europe/Berlin reasons Drifted, Expired``. A reason is held if at least one window
is for it and none of those is open. In a window, budgets hold as ever. Interruptions, repair, forced expiration and
deletions by users aren't held.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from shared.api.labels import DISRUPTION_WINDOWS
from shared.api.time_windows import EXAMPLES, MAX_LENGTH, TimeWindow, WindowError, parse_window
from shared.base.struct import Struct
from shared.disruption.command import DRIFTED, EMPTY, EXPIRED, SURPLUS, UNDERUTILIZED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

HELD_REASONS = (EMPTY, DRIFTED, EXPIRED, UNDERUTILIZED, SURPLUS)
_SEPARATORS = re.compile(r"[;\n]")
_REASONS = re.compile(r"(?P<window>.+?)\s+reasons\s+(?P<reasons>.+)")


class DisruptionWindow(Struct, kw_only=True):
    """A window for these ``reasons``; empty: for all."""

    window: TimeWindow
    reasons: frozenset[str] = frozenset()

    def is_for(self, reason: str) -> bool:
        """Whether the window is for nodes that are disrupted for the reason."""
        return reason in self.reasons if self.reasons else True


class Closed(Struct):
    """Disruption for a reason is held until a window opens; None: none of them ever does again."""

    opens_at: datetime | None

    def message(self, pool: str, reason: str) -> str:
        """One sentence for users."""
        when = f"the next opens at {self.opens_at:%Y-%m-%d %H:%M} UTC" if self.opens_at is not None else "none opens"
        return f"NodePool {pool} is disrupted for reason {reason} only in its windows ({DISRUPTION_WINDOWS}): {when}"


@functools.lru_cache(maxsize=256)
def parse_windows(text: str) -> tuple[DisruptionWindow, ...]:
    """The windows of the annotation.

    >>> (window,) = parse_windows("0 10 * * * for 10m reasons Drifted")
    >>> window.is_for("Drifted"), window.is_for("Empty")
    (True, False)

    Raises:
        WindowError: a part is no window, or names an unknown reason; the message names it and what is allowed.
    """
    parts = [part.strip() for part in _SEPARATORS.split(text)]
    if not any(parts):
        raise WindowError(f"is empty; allowed is one window in each line, such as {EXAMPLES}")
    return tuple(_window(part) for part in parts if part)


def closed(text: str, reason: str, now: datetime) -> Closed | None:
    """That no window of the annotation is open for the reason; None if one is, or the reason isn't held.

    An empty reason asks for windows that are for all reasons.

    Raises:
        WindowError: the annotation can't be read.
    """
    if reason and reason not in HELD_REASONS:
        return None
    windows = [w.window for w in parse_windows(text) if w.is_for(reason)]
    if not windows or any(w.is_open(now) for w in windows):
        return None
    return Closed(min((t for w in windows if (t := w.opens_after(now)) is not None), default=None))


def problems(text: str) -> Iterator[str]:
    """What is wrong with the annotation, with its path."""
    try:
        parse_windows(text)
    except WindowError as error:
        yield f"metadata.annotations[{DISRUPTION_WINDOWS}]: {error}"


def _window(part: str) -> DisruptionWindow:
    match = _REASONS.fullmatch(part) if len(part) <= MAX_LENGTH else None
    window = parse_window(match["window"] if match is not None else part)
    reasons = [r for r in re.split(r"[,\s]+", match["reasons"]) if r] if match is not None else []
    for reason in reasons:
        if reason not in HELD_REASONS:
            raise WindowError(f'"{part}": "{reason}" is no reason; allowed are {", ".join(HELD_REASONS)}')
    return DisruptionWindow(window=window, reasons=frozenset(reasons))
