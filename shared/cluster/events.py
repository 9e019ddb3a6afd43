"""Kubernetes events, as ``kubectl describe`` and ``kubectl get events`` show them.

A repeated event is one object with a count. Its name is a hash of the involved object, reason and message, so functions
that don't share memory write the same object; within five minutes, or longer if the caller says so, a repeat isn't
written at all. A failed write is logged, and never fails the caller.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from shared.api.meta import timestamp
from shared.base import runtime
from shared.base.struct import WireStruct
from shared.cluster.errors import AlreadyExistsError, ApiError
from shared.cluster.resources import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.api.meta import ObjectRef
    from shared.cluster.client import Client

EventType = Literal["Normal", "Warning"]
COMPONENT = "tenon"
REPEAT_INTERVAL = timedelta(minutes=5)
_MAX_NAME_LENGTH = 253
_MAX_MESSAGE_LENGTH = 1024
MAX_REMEMBERED = 10_000
"""When as many events are remembered, the older half is forgotten: a repeat of them asks the API server."""

_log = logging.getLogger(__name__)


class _StoredEvent(WireStruct, rename="camel"):
    count: int = 1
    last_timestamp: datetime | None = None


# Made before any thread needs it: a type that two threads use for the first time at once crashes msgspec.
_stored_event_decoder = msgspec.json.Decoder(_StoredEvent)


class Recorder:
    """Writes events and remembers them, up to ``max_remembered``; use the one of the process (:func:`recorder`)."""

    def __init__(
        self,
        client: Client,
        *,
        now: Callable[[], datetime],
        component: str = COMPONENT,
        max_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self._client = client
        self._now = now
        self._component = component
        self._max_remembered = max_remembered
        self._written_at: dict[str, datetime] = {}

    def record(
        self,
        ref: ObjectRef,
        type_: EventType,
        reason: str,
        message: str,
        *,
        repeat_after: timedelta = REPEAT_INTERVAL,
    ) -> None:
        """Write an event unless it was written within ``repeat_after``. ``reason`` is one CamelCase word."""
        now = self._now()
        text = message if len(message) <= _MAX_MESSAGE_LENGTH else message[: _MAX_MESSAGE_LENGTH - 1] + "…"
        name = event_name(ref, reason, text)
        written_at = self._written_at.get(name)
        if written_at is not None and now - written_at < repeat_after:
            return
        try:
            self._write(self._event(ref, type_, reason, text, name, now), now, repeat_after)
        except ApiError as error:
            _log.warning("writing event %s of %s failed: %s", reason, ref, error)
            return
        if len(self._written_at) >= self._max_remembered:
            self._written_at = dict(list(self._written_at.items())[self._max_remembered // 2 :])
        self._written_at.pop(name, None)  # the order is that of the last writing
        self._written_at[name] = now

    def _event(
        self, ref: ObjectRef, type_: EventType, reason: str, message: str, name: str, now: datetime
    ) -> dict[str, Any]:
        # The API server requires events about cluster-scoped objects to be in "default".
        namespace = ref.namespace or "default"
        time = timestamp(now)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                key: value
                for key, value in (
                    ("apiVersion", ref.api_version),
                    ("kind", ref.kind),
                    ("name", ref.name),
                    ("namespace", ref.namespace),
                    ("uid", ref.uid),
                )
                if value
            },
            "type": type_,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
        }

    def _write(self, event: dict[str, Any], now: datetime, repeat_after: timedelta) -> None:
        """Create the event, or count its repeat."""
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        try:
            self._client.create(EVENTS.path(namespace=namespace), event)
        except AlreadyExistsError:
            path = EVENTS.path(name, namespace=namespace)
            stored = _stored_event_decoder.decode(self._client.get(path))
            if stored.last_timestamp is None or now - stored.last_timestamp >= repeat_after:
                self._client.patch(path, {"count": stored.count + 1, "lastTimestamp": timestamp(now)})


def event_name(ref: ObjectRef, reason: str, message: str) -> str:
    """The name of the event with that message about that object, the same in every process."""
    content = "\0".join((ref.uid or f"{ref.kind}/{ref.namespace}/{ref.name}", reason, message))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"{ref.name[: _MAX_NAME_LENGTH - len(digest) - 1]}.{digest}"


def recorder(client: Client) -> Recorder:
    """The recorder of this process, which remembers its events while the process is warm."""
    return runtime.cached("cluster:recorder", lambda: Recorder(client, now=runtime.now))
