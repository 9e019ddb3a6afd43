"""How long launches of each NodePool take, as an annotation: the nodes that show it may be gone when it is needed.

CapacityBuffers with a schedule are bought that long before a window (``shared/scheduling/buffers/demand.py``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodepool
from shared.api.meta import annotated
from shared.base.struct import with_fields
from shared.cluster import resources
from shared.scheduling.buffers.demand import launch_time

if TYPE_CHECKING:
    from datetime import timedelta

    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot

_STEP_SECONDS = 10
"""The annotation is rounded up to this, so that it rarely changes."""


def remember(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the launch time of every NodePool that has initialized nodes, if a CapacityBuffer has a schedule."""
    if not any(names.SCHEDULE in objects.buffer.metadata.annotations for objects in snapshot.capacity_buffers):
        return
    for pool in snapshot.node_pools:
        own_claims = (c for c in snapshot.node_claims if c.metadata.labels.get(names.NODEPOOL) == pool.name)
        seen = launch_time(own_claims)
        if seen is not None and pool.kind == nodepool.KIND:
            change = partial(_with_launch_time, seen=seen)
            context.attempt(pool.ref, partial(context.update, resources.NODE_POOLS, pool, change))


def _with_launch_time(pool: NodePool, seen: timedelta) -> NodePool:
    seconds = -(-int(seen.total_seconds()) // _STEP_SECONDS) * _STEP_SECONDS
    return with_fields(pool, metadata=annotated(pool.metadata, {names.LAUNCH_SECONDS: str(seconds)}))
