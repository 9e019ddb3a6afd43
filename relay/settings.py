"""What the relay is told by its environment."""

from __future__ import annotations

from shared.settings import Settings


class RelaySettings(Settings, frozen=True, kw_only=True):
    """Which cluster it speaks for, and where to. ``health_port`` serves /healthz."""

    event_bus_name: str
    health_port: int = 8080
