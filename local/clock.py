"""The clock of a local world: real time plus skipped time.

Work takes real time, waiting is skipped. When no actor has anything to do before a certain time, the event loop skips
the clock to that time. An hour of cluster time thus takes seconds, and latencies on this clock are those of real work.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Cluster time, timezone-aware (UTC), which never runs backwards.

    ``elapsed`` measures work in seconds: real time, or ``time.process_time`` to exclude other programs on the machine.
    """

    def __init__(self, start: datetime | None = None, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._start = start or datetime.now(UTC)
        self._elapsed = elapsed
        self._origin = elapsed()
        self._skipped = timedelta()

    def now(self) -> datetime:
        """The cluster time."""
        with self._lock:
            return self._now()

    def skip_to(self, time: datetime) -> timedelta:
        """Skip to the time, unless it has passed. Returns the skipped duration."""
        with self._lock:
            ahead = max(time - self._now(), timedelta())
            self._skipped += ahead
            return ahead

    def sleep(self, seconds: float) -> None:
        """Skip that much time; replaces ``time.sleep``."""
        self.skip_to(self.now() + timedelta(seconds=seconds))

    def _now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed() - self._origin) + self._skipped


class RealTimeClock(Clock):
    """Real time: nothing is skipped, and sleeping waits."""

    def __init__(self) -> None:
        super().__init__(elapsed=time.monotonic)

    def skip_to(self, time: datetime) -> timedelta:  # noqa: ARG002 - as in the base class
        """Skip nothing."""
        return timedelta()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)
