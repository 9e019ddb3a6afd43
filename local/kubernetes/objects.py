"""Objects as JSON, their timestamps, and changes of them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from shared.base.struct import Struct

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind

Obj = dict[str, Any]
"""A Kubernetes object as JSON. Objects are never changed in place; a change makes a new dict."""

Key = tuple[str, str]
"""Namespace ("" when cluster-scoped) and name."""


class Change(Struct):
    """One write. ``object`` is the new state; for DELETED, the last state with the version of its removal."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Obj
    version: int
    kind: Kind
    previous: Obj | None = None


def timestamp(time: datetime) -> str:
    """The time as ``metav1.Time`` writes it: RFC 3339 in UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """The time of a timestamp of the API (RFC 3339, UTC)."""
    return datetime.fromisoformat(text)
