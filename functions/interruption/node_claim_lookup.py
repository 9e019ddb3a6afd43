"""The cluster's NodeClaims by instance id, listed once for a batch of events.

Every cluster of an account receives the Region's events, so most are about other instances. A list that is newer than
an event is enough to ignore the event; NodeClaims that are acted on are read again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.base.struct import Struct
from shared.cloud_provider import instance_id
from shared.cluster.node_class_groups import list_node_claims

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.nodeclaim import NodeClaim
    from shared.base.runtime import Runtime
    from shared.cluster.client import Client

_CLOCK_TOLERANCE = timedelta(seconds=2)
"""Event times are whole seconds, and a launched instance is written to its NodeClaim a moment after it runs."""
_CACHE_KEY = "interruption:instances"


class _KnownInstances(Struct):
    listed_at: datetime
    instance_ids: frozenset[str]


class NodeClaimLookup:
    """The lookup of one invocation; the instance ids are cached in a warm process."""

    def __init__(self, client: Client, runtime: Runtime) -> None:
        self._client = client
        self._runtime = runtime
        self._listed: dict[str, NodeClaim] | None = None

    def for_instances(self, instance_ids: Iterable[str], *, latest_event: datetime) -> dict[str, NodeClaim]:
        """The NodeClaims of these instances, by instance id; ``latest_event`` is the time of the newest event."""
        wanted = set(instance_ids)
        known: _KnownInstances | None = self._runtime.cache.get(_CACHE_KEY)
        if self._listed is None and known is not None and known.listed_at >= latest_event + _CLOCK_TOLERANCE:
            wanted &= known.instance_ids
            if not wanted:
                return {}
        listed = self.all_by_instance()
        return {i: listed[i] for i in sorted(wanted) if i in listed}

    def all_by_instance(self) -> dict[str, NodeClaim]:
        """Every NodeClaim with an instance, by instance id; listed once per invocation."""
        if self._listed is None:
            listed_at = self._runtime.now()
            claims = list_node_claims(self._client).own.objects
            self._listed = {instance_id(c.status.provider_id): c for c in claims if c.status.provider_id}
            self._runtime.cache[_CACHE_KEY] = _KnownInstances(listed_at, frozenset(self._listed))
        return self._listed
