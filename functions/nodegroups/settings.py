"""The environment variables of the function that scales node groups down."""

from __future__ import annotations

from typing import Literal

from shared.base.settings import Settings


class NodeGroupSettings(Settings, frozen=True, kw_only=True):
    """``node_groups`` is "on" wherever the function is deployed. ``node_group_queue_url`` is its own queue.

    Notifications are published on the event bus.
    """

    event_bus_name: str
    node_group_queue_url: str
    dead_letter_queue_url: str
    node_groups: Literal["on", "off"] = "off"
