"""Where the chunks of buffers and of ProvisioningRequests have room: as in the decisions of the other functions.

Why a chunk has none is known only with the catalog's instance types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import Struct
from shared.disruption.simulated_scheduling import initialized_node_names
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.resolved_node_pools import LaunchConditions, resolve_node_pools
from shared.scheduling.buffers.chunks import buffer_of
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule, schedule_on_existing_nodes

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot


class ChunkRoom(Struct, kw_only=True):
    """How many chunks of one buffer fit on initialized nodes, and on nodes that are coming; why others fit nowhere."""

    fitting: int = 0
    coming: int = 0
    unschedulable: int = 0
    why: str = ""


def decide(context: ReconcileContext, snapshot: Snapshot) -> Decision:
    """Where the chunks are now; without a catalog, nothing is known about new nodes."""
    catalog = context.catalog()
    if catalog is None:
        return schedule_on_existing_nodes(snapshot)
    cache = InstanceTypeCache.of(context.runtime)
    pools = resolve_node_pools(
        snapshot, snapshot.node_classes, catalog, LaunchConditions(), cache=cache, now=context.now
    )
    return schedule(Problem(snapshot=snapshot, instance_types=pools.instance_types, not_ready=pools.not_ready))


def chunk_room(key: str, decision: Decision, snapshot: Snapshot) -> ChunkRoom:
    """Where the decision has room for the chunks of a buffer, by its key."""
    initialized = initialized_node_names(snapshot)
    by_node = {name: sum(buffer_of(chunk) == key for chunk in chunks) for name, chunks in decision.chunks.items()}
    errors = [error for chunk, error in sorted(decision.chunk_errors.items()) if buffer_of(chunk) == key]
    return ChunkRoom(
        fitting=sum(count for name, count in by_node.items() if name in initialized),
        coming=sum(count for name, count in by_node.items() if name not in initialized),
        unschedulable=len(errors),
        why=errors[0].message if errors else "",
    )
