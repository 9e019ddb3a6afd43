"""Status of NodeOverlays: conditions ValidationSucceeded and Ready, which say whether an overlay is applied.

Which overlays conflict follows from the instance types that the NodePools have, as in decisions. Invalid overlays get
their conditions as other invalid objects do (:mod:`functions.lifecycle.statuses.validation`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api.meta import with_condition
from shared.api.node_overlay import NodeOverlayStatus
from shared.api.nodeclass import READY, VALIDATION_SUCCEEDED
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.resolved_node_pools import LaunchConditions, resolve_node_pools

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodeclass import EC2NodeClass
    from shared.snapshot import Snapshot


def write_statuses(context: ReconcileContext, snapshot: Snapshot, node_classes: Mapping[str, EC2NodeClass]) -> None:
    """Write the status of every valid NodeOverlay; without a catalog, statuses stay as they are."""
    catalog = context.catalog()
    if catalog is None:
        return
    resolved = resolve_node_pools(
        snapshot,
        tuple(node_classes.values()),
        catalog,
        LaunchConditions(),
        cache=InstanceTypeCache.of(context.runtime),
        now=context.now,
    )
    for overlay in snapshot.node_overlays:
        conflict = resolved.overlay_conflicts.get(overlay.name, "")
        context.attempt(overlay.ref, partial(_write_status, context, overlay, conflict))


def status(overlay: NodeOverlay, conflict: str, *, now: datetime) -> NodeOverlayStatus:
    """The status of a valid overlay; ``conflict`` says with which overlay it conflicts (empty: with none)."""
    conditions = overlay.status.conditions
    for type_, reason in ((VALIDATION_SUCCEEDED, "Valid"), (READY, "Ready")):
        conditions = with_condition(
            conditions,
            type_,
            status=not conflict,
            reason="Conflict" if conflict else reason,
            message=conflict,
            now=now,
            generation=overlay.metadata.generation,
        )
    return NodeOverlayStatus(conditions=conditions)


def _write_status(context: ReconcileContext, overlay: NodeOverlay, conflict: str) -> None:
    def change(current: NodeOverlay) -> NodeOverlay:
        return with_fields(current, status=status(current, conflict, now=context.now))

    writes.update_status(context.client, resources.NODE_OVERLAYS, overlay, change)
    if conflict:
        context.recorder.record(overlay.ref, "Warning", "Conflict", conflict)
