"""Objects as JSON, and changes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind

Obj = dict[str, Any]
"""A Kubernetes object as JSON. Objects are never changed in place; a change makes a new dict."""

Key = tuple[str, str]
"""Namespace ("" when cluster-scoped) and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write. ``object`` is the new state; for DELETED, the last state with the version of its removal."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Obj
    version: int
    kind: Kind
    previous: Obj | None = None
