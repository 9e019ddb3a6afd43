"""Past events and decisions on an object. A cluster that is read from files has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shared.base.struct import Struct

if TYPE_CHECKING:
    from datetime import datetime

    from shared.api.meta import ObjectRef
    from shared.base.decision_log import DecisionRecord, LaunchRecord


class PastEvent(Struct, kw_only=True):
    """An event on an object, or a row of the decision log. ``by`` is the reporting component."""

    at: datetime | None
    reason: str
    message: str
    by: str = ""


class History(Protocol):
    """Where past events and decisions are read from."""

    def events(self, ref: ObjectRef) -> tuple[PastEvent, ...]:
        """The events on an object, newest first."""
        ...

    def decisions(self, node: str) -> tuple[DecisionRecord, ...]:
        """The decision log's rows on a node, newest first."""
        ...

    def since(self, moment: datetime) -> tuple[DecisionRecord, ...]:
        """The disruption decisions after a moment, oldest first."""
        ...

    def launches_since(self, moment: datetime) -> tuple[LaunchRecord, ...]:
        """The launches of scheduling decisions after a moment, oldest first."""
        ...


class NoHistory:
    """The history of a cluster that is read from files: empty."""

    def events(self, ref: ObjectRef) -> tuple[PastEvent, ...]:  # noqa: ARG002 (the protocol's)
        """None."""
        return ()

    def decisions(self, node: str) -> tuple[DecisionRecord, ...]:  # noqa: ARG002 (the protocol's)
        """None."""
        return ()

    def since(self, moment: datetime) -> tuple[DecisionRecord, ...]:  # noqa: ARG002 (the protocol's)
        """None."""
        return ()

    def launches_since(self, moment: datetime) -> tuple[LaunchRecord, ...]:  # noqa: ARG002 (the protocol's)
        """None."""
        return ()
