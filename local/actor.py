"""The actors of a local world's event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class Actor(Protocol):
    """A kubelet, a scheduler, a queue's poller: stepped by the event loop in one thread."""

    def step(self, now: datetime) -> bool:
        """Do everything that is due. True if anything was done, so that the loop steps again before time moves."""
        ...

    def due(self) -> datetime | None:
        """When there is something to do if nothing else happens; None: never by itself."""
        ...
