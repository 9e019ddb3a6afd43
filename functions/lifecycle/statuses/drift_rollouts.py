"""Records on NodePools with drift waves what their nodes are replaced for, and stops drift when a new node fails.

The rules are in :mod:`shared.disruption.drift_waves`. The annotation outlives the NodeClaim that failed; removing it
lets the waves begin again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from functions.lifecycle.statuses.nodepool_status import with_obstacle
from shared.api import labels as names
from shared.api.meta import EventReason, annotated
from shared.base.struct import with_fields
from shared.cluster import resources
from shared.disruption import drift_waves
from shared.disruption.drift_waves import WavesError

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodepool import NodePool
    from shared.disruption.drift_waves import Rollout
    from shared.snapshot import Snapshot

DRIFT_STOPPED = "DriftStopped"
"""Condition of a NodePool; it is never False, so that no other NodePool has it."""
_FAILED = EventReason("DriftStopped")
_INVALID = EventReason("InvalidAnnotation")


def record(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the rollout and the condition of every NodePool that has, or had, waves."""
    for pool in snapshot.node_pools:
        if pool.metadata.annotations.keys() & {names.DRIFT_WAVES, names.DRIFT_ROLLOUT}:
            context.attempt(pool.ref, partial(_record, context, pool, snapshot))


def _record(context: ReconcileContext, pool: NodePool, snapshot: Snapshot) -> None:
    rollout = drift_waves.next_rollout(pool, snapshot, now=context.now)
    if rollout != drift_waves.read_rollout(pool):
        resource = resources.for_kind(pool.api_version, pool.kind)
        context.update(resource, pool, partial(_with_rollout, rollout=rollout))
    obstacle = _stop(pool, rollout)
    if obstacle is not None:
        context.recorder.record(pool.ref, "Warning", *obstacle)
    context.write_conditions(pool, partial(with_obstacle, type_=DRIFT_STOPPED, obstacle=obstacle, now=context.now))


def _with_rollout(pool: NodePool, rollout: Rollout | None) -> NodePool:
    text = msgspec.json.encode(rollout).decode() if rollout is not None else None
    return with_fields(pool, metadata=annotated(pool.metadata, {names.DRIFT_ROLLOUT: text}))


def _stop(pool: NodePool, rollout: Rollout | None) -> tuple[EventReason, str] | None:
    """Why drift of the NodePool is stopped (reason, message); None if it isn't."""
    try:
        drift_waves.parse_waves(pool.metadata.annotations.get(names.DRIFT_WAVES, "1"))
    except WavesError as error:
        return _INVALID, f"no drifted node is replaced until this is mended: {error}"
    if rollout is None or not rollout.stopped:
        return None
    return _FAILED, drift_waves.stop_message(pool, rollout.stopped)
