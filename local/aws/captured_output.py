"""The standard output of functions: their logs and metrics, separately for each invocation."""

from __future__ import annotations

import logging
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from infra import function_sizes

if TYPE_CHECKING:
    import io

OUTPUT: ContextVar[io.StringIO | None] = ContextVar("output", default=None)
"""What the invocation in this context has printed."""


class _CapturedOutput:
    """Replaces standard output while functions run, and separates what each invocation prints, in any thread.

    It is installed for each invocation, because test runners replace standard output between them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._outside: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._outside = sys.stdout
                sys.stdout = self
                self._take_over_loggers()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.stdout = self._outside

    def _take_over_loggers(self) -> None:
        """Let functions that were imported outside invocations log to this stream too: loggers keep the first one."""
        for name in function_sizes.OF_ANY_MODE:
            for handler in logging.getLogger(name).handlers:
                if type(handler) is logging.StreamHandler and handler.stream is not self:
                    handler.setStream(self)

    def write(self, text: str) -> int:
        return int(self._target().write(text))

    def flush(self) -> None:
        self._target().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target(), name)

    def _target(self) -> Any:
        captured = OUTPUT.get()
        if captured is not None:
            return captured
        # A function's logger keeps this stream; outside invocations it writes to standard output.
        return self._outside if self._users else sys.stdout


captured_output = _CapturedOutput()
"""Entered while an invocation runs."""
