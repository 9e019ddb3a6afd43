"""What the process that a function runs in gives to it: environment variables, the time, sleep, and memory.

On Lambda that is the process itself. The local world, which runs every function in one process and turns the clock,
gives each function its own. Code that needs any of these asks :func:`current`, at run time, never at import.
"""

from __future__ import annotations

import contextlib
import os
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Host:
    """Environment variables, the time (timezone-aware, UTC), a way to wait (seconds), and what a warm process keeps."""

    environ: Mapping[str, str]
    now: Callable[[], datetime] = _utc_now
    sleep: Callable[[float], None] = time.sleep
    warm: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What was made under that name before in this process, or made now: clients, caches."""
        if name not in self.warm:
            self.warm[name] = make()
        kept: T = self.warm[name]
        return kept


_process = Host(environ=os.environ)
_current: ContextVar[Host] = ContextVar("host", default=_process)


def current() -> Host:
    """The host of this invocation; outside the local world, the process."""
    return _current.get()


@contextlib.contextmanager
def using(host: Host) -> Iterator[None]:
    """Run the body on another host; for the local world and for tests."""
    token = _current.set(host)
    try:
        yield
    finally:
        _current.reset(token)
