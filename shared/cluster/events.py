"""What happened, told where people look: ``kubectl describe`` and ``kubectl get events``.

The same thing said again is one event with a count, not many. An event's name is a hash of what it says and about
which object, so that functions that don't know of each other still write the same one; and within five minutes nothing
is written at all. Telling never fails who tells.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec

from shared import runtime
from shared.cluster.errors import AlreadyExistsError, ApiError
from shared.cluster.resources import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.api.meta import ObjectRef
    from shared.cluster.client import Client

EventType = Literal["Normal", "Warning"]
COMPONENT = "tenon"
AGAIN_AFTER = timedelta(minutes=5)
_LONGEST_NAME = 253
_LONGEST_MESSAGE = 1024
_MOST_REMEMBERED = 10_000

_log = logging.getLogger(__name__)


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 1
    last_timestamp: datetime | None = None


class Recorder:
    """Writes events; a process keeps one (:func:`recorder`), so that it remembers what it has said."""

    def __init__(self, client: Client, *, now: Callable[[], datetime], component: str = COMPONENT) -> None:
        self._client = client
        self._now = now
        self._component = component
        self._said: dict[str, datetime] = {}

    def record(self, ref: ObjectRef, type_: EventType, reason: str, message: str) -> None:
        """Tell it, unless it was told within five minutes. ``reason`` is one CamelCase word."""
        now = self._now()
        text = message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
        name = event_name(ref, reason, text)
        said = self._said.get(name)
        if said is not None and now - said < AGAIN_AFTER:
            return
        try:
            self._write(ref, type_, reason, text, name, now)
        except ApiError as error:
            _log.warning("the event %s on %s was not written: %s", reason, ref, error)
            return
        if len(self._said) >= _MOST_REMEMBERED:
            self._said = {key: at for key, at in dict(self._said).items() if now - at < AGAIN_AFTER}
        self._said[name] = now

    def _write(self, ref: ObjectRef, type_: EventType, reason: str, message: str, name: str, now: datetime) -> None:
        # an event about an object without namespace lives in "default" (the API server insists)
        namespace = ref.namespace or "default"
        stamp = _seconds(now)
        event = {
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
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
        }
        try:
            self._client.create(EVENTS.path(namespace=namespace), event)
        except AlreadyExistsError:
            path = EVENTS.path(name, namespace=namespace)
            seen = msgspec.json.decode(self._client.get(path), type=_Seen)
            if seen.last_timestamp is None or now - seen.last_timestamp >= AGAIN_AFTER:
                self._client.patch(path, {"count": seen.count + 1, "lastTimestamp": stamp})


def event_name(ref: ObjectRef, reason: str, message: str) -> str:
    """The name of the event that says this of that object, the same in every process."""
    said = "\0".join((ref.uid or f"{ref.kind}/{ref.namespace}/{ref.name}", reason, message))
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return f"{ref.name[: _LONGEST_NAME - len(digest) - 1]}.{digest}"


def _seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def recorder(client: Client) -> Recorder:
    """The process's recorder, which remembers what it has said as long as the process is warm."""
    return runtime.current().cached("cluster:recorder", lambda: Recorder(client, now=lambda: runtime.current().now()))
