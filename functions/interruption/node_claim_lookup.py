"""Whose machine it is: the cluster's claims by instance, looked up once for many messages.

Every cluster of an account gets the whole Region's events, so most are about other people's machines. What was read
after an event is good enough to drop it; whatever turns out to be ours is read anew before anything is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared import runtime
from shared.api.nodeclaim import NodeClaim
from shared.cluster import resources
from shared.cluster.listing import list_objects
from shared.launch.instances import instance_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.cluster.client import Client

_SETTLED = timedelta(seconds=2)
"""Events give whole seconds, and a launched instance stands on its claim a moment after it runs."""
_KEPT = "interruption:instances"


@dataclass(frozen=True)
class _Known:
    at: datetime
    instances: frozenset[str]


class Claims:
    """The lookup of one invocation; what a warm process knows of instances outlives it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._listed: dict[str, NodeClaim] | None = None

    def of(self, instance_ids: Iterable[str], *, latest: datetime) -> dict[str, NodeClaim]:
        """Our claims among these instances, by instance; ``latest`` is the time of the youngest event about them."""
        wanted = set(instance_ids)
        known: _Known | None = runtime.current().cache.get(_KEPT)
        if self._listed is None and known is not None and known.at >= latest + _SETTLED:
            wanted &= known.instances
            if not wanted:
                return {}
        listed = self.all()
        return {i: listed[i] for i in sorted(wanted) if i in listed}

    def all(self) -> dict[str, NodeClaim]:
        """Every claim that has an instance, by instance; read once an invocation."""
        if self._listed is None:
            at = runtime.current().now()
            listed = list_objects(self._client, resources.NODE_CLAIMS, NodeClaim).objects
            self._listed = {instance_id(c.status.provider_id): c for c in listed if c.status.provider_id}
            runtime.current().cache[_KEPT] = _Known(at, frozenset(self._listed))
        return self._listed
