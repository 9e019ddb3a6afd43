"""Settings of the buffers function, from environment variables."""

from __future__ import annotations

import msgspec

from shared.api.buffer_signals import Event, event
from shared.base.settings import Settings


class BufferSettings(Settings, frozen=True, kw_only=True):
    """The queues, alarms and events that buffers may follow, named at deployment; and the dead-letter queue.

    The names are lists in JSON, because an alarm's name may have any character.
    """

    buffer_queues: str
    buffer_alarms: str
    buffer_events: str
    dead_letter_queue_url: str

    @property
    def queues(self) -> frozenset[str]:
        """The names of the queues."""
        return frozenset(msgspec.json.decode(self.buffer_queues, type=list[str]))

    @property
    def alarms(self) -> frozenset[str]:
        """The names of the alarms."""
        return frozenset(msgspec.json.decode(self.buffer_alarms, type=list[str]))

    @property
    def events(self) -> frozenset[Event]:
        """The sources and detail-types of the events."""
        texts = msgspec.json.decode(self.buffer_events, type=list[str])
        return frozenset(parsed for text in texts if (parsed := event(text)))
