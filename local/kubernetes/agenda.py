"""What a controller or kubelet does later."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class Agenda:
    """Actions by their time; those of one time in the order in which they were added."""

    def __init__(self) -> None:
        self._actions: list[tuple[datetime, int, Callable[[datetime], None]]] = []
        self.added = 0

    def at(self, time: datetime, action: Callable[[datetime], None]) -> None:
        """Call the action with the time at which it runs, which isn't before ``time``."""
        self.added += 1
        heapq.heappush(self._actions, (time, self.added, action))

    def due(self) -> datetime | None:
        """The time of the next action."""
        return self._actions[0][0] if self._actions else None

    def run(self, now: datetime) -> None:
        """Do everything that is due, also what is added meanwhile."""
        while self._actions and self._actions[0][0] <= now:
            heapq.heappop(self._actions)[2](now)
