"""The world's event loop: a discrete-event simulation over actors.

It steps the actors until none has anything left to do now and no other thread works; then it skips the clock to the
next time at which an actor has something to do. Work takes real time, waiting takes none.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from time import sleep
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local.actor import Actor
    from local.clock import Clock

DEFAULT_LIMIT = timedelta(hours=2)
_POLL_SECONDS = 0.002
"""Seconds of real time between checks whether other threads still work."""
_MAX_WAIT_SECONDS = 0.2
"""The longest wait in real time, so that the loop sees changes from outside."""
_REAL_TIME_STEP = timedelta(seconds=1)
_OVERRUN = timedelta(minutes=1)
"""How long after its end a run still does what is due: where calls take long, something always is."""
_MIN_WAIT_SECONDS = 0.02
"""The shortest wait in real time, so that the loop leaves the processor to the threads that wake it."""


class StuckError(RuntimeError):
    """A condition was not met within the limit; the text tells what is unfinished."""


class EventLoop:
    """Steps actors and moves the clock."""

    def __init__(
        self,
        clock: Clock,
        actors: Sequence[Actor],
        *,
        is_busy: Callable[[], bool],
        is_running: Callable[[], bool] = lambda: False,
        after_step: Callable[[], None],
        unfinished: Callable[[], object],
        skips_waiting: bool = True,
    ) -> None:
        """The loop over these actors.

        ``is_busy`` tells whether another thread works, ``is_running`` whether a function does: a run ends when none
        does, so that nothing changes while the caller reads the state. ``after_step`` is called when all actors were
        stepped, and ``unfinished`` describes what is unfinished, for the text of an error. Without ``skips_waiting``
        time is real.
        """
        self._clock = clock
        self._actors = actors
        self._is_busy = is_busy
        self._is_running = is_running
        self._after_step = after_step
        self._unfinished = unfinished
        self._skips_waiting = skips_waiting
        self._settled_at = clock.now()
        """When the last round of steps began."""
        self._woken = threading.Event()

    def wake(self) -> None:
        """End the loop's current wait, from any thread."""
        self._woken.set()

    def run_until(self, condition: Callable[[], bool], *, limit: timedelta = DEFAULT_LIMIT) -> None:
        """Run until the condition holds; it is checked whenever all actors were stepped.

        Raises:
            StuckError: it doesn't hold within that much cluster time.
        """
        end = self._clock.now() + limit
        while not self._advance(condition, end):
            if self._clock.now() >= end:
                raise StuckError(f"not within {limit}; unfinished: {self._unfinished()}")
        self._finish()

    def run_for(self, duration: timedelta) -> None:
        """Run for that much cluster time."""
        end = self._clock.now() + duration
        while self._clock.now() < end:
            self._advance(lambda: False, end)
        self._finish()

    def _finish(self) -> None:
        while self._is_running():
            self._wait(_POLL_SECONDS)

    def run_in_real_time(self) -> None:
        """Run forever without skipping time; ends by an exception."""
        self._skips_waiting = False
        while True:
            self._advance(lambda: False, self._clock.now() + _REAL_TIME_STEP)

    def settle(self, condition: Callable[[], bool] = lambda: False) -> bool:
        """Do everything that is due now and its consequences, without moving time. True once the condition holds."""
        while True:
            did = False
            self._settled_at = self._clock.now()
            for actor in self._actors:
                did |= actor.step(self._clock.now())
            self._after_step()
            if condition():
                return True
            if did:
                continue
            if self._is_busy():
                self._wait(_POLL_SECONDS)
                continue
            return False

    def _advance(self, condition: Callable[[], bool], end: datetime) -> bool:
        """Settle, then move to the next due time, at most to the end. True as soon as the condition holds."""
        if self.settle(lambda: condition() or self._clock.now() > end + _OVERRUN):
            return condition()
        due = [time for actor in self._actors if (time := actor.due()) is not None]
        upcoming = min((time for time in due if time > self._settled_at), default=end)
        if not self._skips_waiting:
            sleep(_MIN_WAIT_SECONDS)
            ahead = (min([*due, end]) - self._clock.now()).total_seconds()
            if ahead > 0:
                self._wait(min(ahead, _MAX_WAIT_SECONDS))
        elif self._is_running() and any(time <= self._settled_at for time in due):
            # Held back by its thread or by a concurrency limit, until an invocation ends.
            self._wait(_POLL_SECONDS)
        else:
            # What was due and wasn't done waits for something else, such as an invocation that is throttled.
            self._clock.skip_to(min(upcoming, end))
        return False

    def _wait(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()


class BackgroundLoop:
    """A context manager that steps actors in real time in a thread of its own."""

    def __init__(self, clock: Clock, actors: Sequence[Actor]) -> None:
        self._loop = EventLoop(
            clock, actors, is_busy=lambda: False, after_step=self._check, unfinished=lambda: "", skips_waiting=False
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="background loop", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the thread.

        Raises:
            Exception: what an actor raised, if the body raised nothing.
        """
        self._stopping.set()
        self._loop.wake()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _check(self) -> None:
        if self._stopping.is_set():
            raise _StoppedError

    def _run(self) -> None:
        try:
            self._loop.run_in_real_time()
        except _StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - raised again in the thread that ends the loop
            self._error = error


class _StoppedError(Exception):
    """The loop's context has ended."""
