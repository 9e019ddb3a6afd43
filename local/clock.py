"""The clock of a local world: real time plus skipped time.

Work takes real time, waiting is skipped. When no actor has anything to do before a certain time, the event loop skips
the clock to that time. An hour of cluster time thus takes seconds.

Threads that wait at the same time wait together: each has skipped its own time, and the clock has skipped the longest
of them. No thread ever waits for another, so none can be stuck, whatever locks they hold. A thread reads the time that
it has come to; threads without a time of their own, such as the event loop's and the API server's, read the clock's.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")


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
        self._of_thread = threading.local()

    def now(self) -> datetime:
        """The cluster time, of this thread if it has its own."""
        with self._lock:
            return self._now()

    def skip_to(self, time: datetime) -> timedelta:
        """Skip to the time, unless it has passed. Returns the skipped duration."""
        with self._lock:
            ahead = max(time - self._now(), timedelta())
            own = self._own_skipped() + ahead
            if self._has_own_time():
                self._of_thread.skipped = own
            self._skipped = max(self._skipped, own)
            return ahead

    def sleep(self, seconds: float) -> None:
        """Skip that much time; replaces ``time.sleep``."""
        self.skip_to(self.now() + timedelta(seconds=seconds))

    @contextlib.contextmanager
    def own_time(self) -> Iterator[None]:
        """Let this thread have a time of its own in the body, from the present one on."""
        self._of_thread.skipped = self._skipped
        try:
            yield
        finally:
            del self._of_thread.skipped

    def threads(self, count: int) -> Executor:
        """A pool of threads whose calls wait at the same time, as those of ``count`` threads do."""
        return _OverlappingThreads(self, count)

    def skipped(self) -> timedelta:
        """How much this thread has skipped."""
        with self._lock:
            return self._own_skipped()

    def continue_at(self, skipped: timedelta) -> None:
        """Let this thread have skipped that much, neither more nor less."""
        with self._lock:
            self._of_thread.skipped = skipped
            self._skipped = max(self._skipped, skipped)

    def join(self, skipped: timedelta) -> None:
        """Let this thread have skipped at least that much: it has waited for one that did."""
        with self._lock:
            if self._has_own_time():
                self._of_thread.skipped = max(self._of_thread.skipped, skipped)

    def _has_own_time(self) -> bool:
        return hasattr(self._of_thread, "skipped")

    def _own_skipped(self) -> timedelta:
        own: timedelta = getattr(self._of_thread, "skipped", self._skipped)
        return own

    def _now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed() - self._origin) + self._own_skipped()


class _OverlappingThreads(ThreadPoolExecutor):
    """Real threads; the time of each call is that of the simulated thread that is free first.

    Waits take no real time, so one real thread could do the work of all before the others start. Which simulated thread
    does a call is thus decided here: a call begins when one of ``count`` threads would be free for it.
    """

    def __init__(self, clock: Clock, count: int) -> None:
        super().__init__(count)
        self._clock = clock
        self._heap_lock = threading.Lock()
        self._free = [clock.skipped()] * count
        """What each free thread has skipped; a heap."""

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the function in a thread."""
        return super().submit(self._run, function, *args, **kwargs)  # type: ignore[arg-type]  # its own arguments follow

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the base class's own
        """Wait for the threads; the caller's time is then that of the last of them."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        self._clock.join(max(self._free))

    def _run(self, function: Callable[..., T], *args: object, **kwargs: object) -> T:
        with self._heap_lock:
            begin = heapq.heappop(self._free)
        self._clock.continue_at(begin)
        try:
            return function(*args, **kwargs)
        finally:
            with self._heap_lock:
                heapq.heappush(self._free, self._clock.skipped())


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

    def threads(self, count: int) -> Executor:
        """A pool of threads, which really wait."""
        return ThreadPoolExecutor(count)
