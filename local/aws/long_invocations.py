"""Invocations that wait for minutes: each in a thread of its own, which only runs while the world's loop lets it.

Such a handler waits by ``runtime.current().wait`` for a time or a change. While it waits, the world may skip the clock;
when the time has come or the change is there, the loop resumes the handler and waits until it waits again or ends. So
it takes turns with the other actors as if it were one.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any

    from local.aws.invocation_timeout import Timeout

MIN_TIMEOUT = 600
"""Functions with a longer timeout (seconds) run this way."""


class WorldEnded(BaseException):
    """The world ends while the invocation waits; no exception handler of the function sees it."""


class LongInvocation:
    """One invocation: ``run`` is its body, and is given the function to wait by."""

    def __init__(
        self,
        run: Callable[[LongInvocation], None],
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._now = now
        self._turn = threading.Event()
        self._waits = threading.Event()
        self._until: datetime | None = None
        self._changed: threading.Event | None = None
        self._is_killed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,), name="long invocation", daemon=True)
        self.ended = False

    def start(self) -> None:
        """Run until the invocation waits or ends."""
        self._thread.start()
        self._wait_for_invocation()

    def resume_if_due(self, now: datetime) -> bool:
        """Run until it waits again or ends, if its time has come or the change is there. False otherwise."""
        if not self.is_due(now):
            return False
        self._resume()
        return True

    def is_due(self, now: datetime) -> bool:
        """Whether what it waits for is there."""
        is_changed = self._changed is not None and self._changed.is_set()
        return not self.ended and (is_changed or (self._until is not None and self._until <= now))

    @property
    def due(self) -> datetime | None:
        """Until when it waits at most."""
        return None if self.ended else self._until

    def end(self) -> None:
        """End it where it waits, as a process that is killed."""
        self._is_killed = True
        while not self.ended:
            self._resume()

    def wait(self, timeout: Timeout, changed: threading.Event, seconds: float) -> None:
        """Wait, in the invocation's own thread, at most until its timeout.

        Raises:
            TimedOut: the timeout has ended the wait.
            WorldEnded: the world ends.
        """
        if changed.is_set():
            return
        timeout.check()
        self._until = self._now() + timedelta(seconds=min(seconds, timeout.remaining + 0.001))
        self._changed = changed
        self._waits.set()
        self._turn.wait()
        self._turn.clear()
        self._until = self._changed = None
        if self._is_killed:
            raise WorldEnded
        timeout.check()

    def _resume(self) -> None:
        self._waits.clear()
        self._turn.set()
        self._wait_for_invocation()

    def _wait_for_invocation(self) -> None:
        self._waits.wait()
        if self.ended:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, run: Callable[[LongInvocation], None]) -> None:
        try:
            run(self)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the loop
            self._error = error
        finally:
            self.ended = True
            self._waits.set()


class LongInvocations:
    """The invocations that wait, by their function, each with its execution environment's cache."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._waiting: list[tuple[str, dict[str, Any], LongInvocation]] = []

    def count(self, function: str) -> int:
        """How many of the function wait."""
        return len(self.caches(function))

    def caches(self, function: str) -> list[dict[str, Any]]:
        """The caches of the function's invocations that wait."""
        return [cache for name, cache, _ in self._waiting if name == function]

    def start(self, function: str, cache: dict[str, Any], run: Callable[[LongInvocation], None]) -> None:
        """Run an invocation until it waits or ends."""
        invocation = LongInvocation(run, now=self._now)
        invocation.start()
        if not invocation.ended:
            self._waiting.append((function, cache, invocation))

    def step(self, now: datetime) -> bool:
        """Resume those that are due. True if any was."""
        did = False
        for waiting in list(self._waiting):
            did |= waiting[2].resume_if_due(now)
            if waiting[2].ended:
                self._waiting.remove(waiting)
        return did

    def due(self) -> datetime | None:
        """When the first of them has waited long enough."""
        return min((due for _, _, invocation in self._waiting if (due := invocation.due) is not None), default=None)

    def close(self) -> None:
        """End all."""
        for _, _, invocation in self._waiting:
            invocation.end()
        self._waiting.clear()
