"""Settings of the relay function, from environment variables."""

from __future__ import annotations

from shared.base.settings import Settings


class RelaySettings(Settings, frozen=True, kw_only=True):
    """The event bus that hints are sent to."""

    event_bus_name: str
