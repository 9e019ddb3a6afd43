"""The timeout of Lambda functions: an invocation is killed at the moment at which its timeout has passed.

A thread can't be killed, so the invocation ends at its first call to AWS or Kubernetes after that moment, or at its
end: between two calls it changes nothing that others see. A wait that would exceed the timeout ends at the moment.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class TimedOut(BaseException):
    """The invocation was killed at its timeout; no exception handler of the function sees it."""


class Timeout(Struct, kw_only=True):
    """The timeout of one invocation. ``now`` and ``sleep`` (seconds) are the cluster's clock."""

    seconds: float
    at: datetime
    now: Callable[[], datetime]
    sleep: Callable[[float], None]

    @property
    def remaining(self) -> float:
        """Seconds until the invocation is killed; negative afterwards."""
        return (self.at + timedelta(seconds=self.seconds) - self.now()).total_seconds()

    def check(self) -> None:
        """End the invocation if its timeout has passed.

        Raises:
            TimedOut: it has.
        """
        if self.remaining < 0:
            raise TimedOut(f"Task timed out after {self.seconds:.2f} seconds")

    def wait(self, seconds: float) -> None:
        """Wait, at most until the timeout.

        Raises:
            TimedOut: the timeout ends the wait.
        """
        remaining = self.remaining
        self.sleep(min(seconds, max(remaining, 0)))
        if seconds > remaining:
            raise TimedOut(f"Task timed out after {self.seconds:.2f} seconds")


TIMEOUT: ContextVar[Timeout | None] = ContextVar("timeout", default=None)
"""The timeout of the invocation that runs in this context; None outside functions."""


def check() -> None:
    """End the invocation of this context if its timeout has passed.

    Raises:
        TimedOut: it has.
    """
    if (timeout := TIMEOUT.get()) is not None:
        timeout.check()
