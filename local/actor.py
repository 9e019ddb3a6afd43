"""What takes part in a local world: anything that does what is due, and knows when it is due again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


class Actor(Protocol):
    """A kubelet, a scheduler, a queue's poller: stepped by the world's loop, in one thread."""

    def step(self, now: datetime) -> bool:
        """Do all that is due. True if anything was done, so that the world looks around again before time moves."""
        ...

    def due(self) -> datetime | None:
        """When there will be something to do if nothing else happens; None: never by itself."""
        ...
