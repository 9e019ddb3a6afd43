"""The calls to AWS: caller, operation, time, latency and error of each.

The demo shows them, tests count them, and an idle cluster has none. A retry is a call of its own, as AWS counts it.
"""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""The function that runs in this context; empty outside functions."""


class Call(Struct, kw_only=True):
    """One call. ``latency`` in seconds of cluster time; ``error`` is AWS's error code, empty on success."""

    at: datetime
    service: str
    operation: str
    caller: str
    latency: float
    error: str = ""


class Calls:
    """All calls of a world, oldest first."""

    def __init__(self) -> None:
        self.all: list[Call] = []
        self._observers: list[Callable[[Call], None]] = []

    def add(self, call: Call) -> None:
        """Record a call and notify the observers."""
        self.all.append(call)
        for observer in self._observers:
            observer(call)

    def observe(self, observer: Callable[[Call], None]) -> None:
        """Notify the observer of every later call, in the caller's thread."""
        self._observers.append(observer)

    def count(self) -> Counter[tuple[str, str]]:
        """The number of calls of each (service, operation)."""
        return Counter((call.service, call.operation) for call in self.all)
