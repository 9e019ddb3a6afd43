"""The clock of a local world: real time plus what was skipped.

Work takes as long as it takes; waiting is skipped. When nothing in the world has anything to do before some moment, the
world turns the clock to that moment, so an hour of cluster time runs in seconds, and latencies measured on this clock
are still those of real work.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Cluster time, timezone-aware (UTC); never runs backwards.

    ``elapsed`` is what work takes, in seconds: real time, or ``time.process_time`` where other programs keep the
    machine busy and would be measured too.
    """

    def __init__(self, start: datetime | None = None, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._start = start or datetime.now(UTC)
        self._elapsed = elapsed
        self._origin = elapsed()
        self._skipped = timedelta()

    def now(self) -> datetime:
        """The cluster's time."""
        with self._lock:
            return self._now()

    def skip_to(self, moment: datetime) -> timedelta:
        """Skip ahead to the moment; one that has passed changes nothing. Returns what was skipped."""
        with self._lock:
            ahead = max(moment - self._now(), timedelta())
            self._skipped += ahead
            return ahead

    def sleep(self, seconds: float) -> None:
        """What ``time.sleep`` is on this clock: the time is skipped, nobody waits."""
        self.skip_to(self.now() + timedelta(seconds=seconds))

    def _now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed() - self._origin) + self._skipped
