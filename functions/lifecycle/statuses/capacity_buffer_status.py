"""Status of CapacityBuffers: how many chunks they have, and whether there is room for all of them.

The room is where the scheduler places the chunks, as in the decisions of the other functions. Why a chunk has none is
known only with the catalog's instance types. Reasons are upstream's (Karpenter's capacitybuffer controller).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle.statuses import provisioning_request_status
from functions.lifecycle.statuses.chunk_room import chunk_room, decide
from shared.api.capacity_buffer import (
    PROVISIONING,
    READY_FOR_PROVISIONING,
    CapacityBufferStatus,
    LocalObjectRef,
)
from shared.api.meta import with_condition
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.scheduling.buffers.chunks import resolved_buffers

if TYPE_CHECKING:
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from functions.lifecycle.statuses.chunk_room import ChunkRoom
    from shared.api.capacity_buffer import CapacityBuffer
    from shared.scheduling.buffers.chunks import ResolvedBuffer
    from shared.snapshot import Snapshot

FITS_EXISTING_CAPACITY = "FitsExistingCapacity"
REQUIRES_NEW_CAPACITY = "RequiresNewCapacity"
NOT_READY_FOR_PROVISIONING = "NotReadyForProvisioning"
BUFFER_EMPTY = "BufferEmpty"


def write_statuses(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Write the status of every CapacityBuffer that Tenon provides, and of every ProvisioningRequest."""
    decision = decide(context, snapshot)
    buffers = resolved_buffers(snapshot)
    rooms = {resolved.objects.key: chunk_room(resolved.objects.key, decision, snapshot) for resolved in buffers}
    provisioning_request_status.write_statuses(context, buffers, rooms)
    for resolved in buffers:
        if resolved.objects.request is None:
            room = rooms[resolved.objects.key]
            context.attempt(resolved.objects.buffer.ref, partial(_write_status, context, resolved, room))


def status(resolved: ResolvedBuffer, room: ChunkRoom, *, now: datetime) -> CapacityBufferStatus:
    """The status of a buffer with this room."""
    objects, buffer = resolved.objects, resolved.objects.buffer
    is_ready = resolved.template is not None
    conditions = with_condition(
        buffer.status.conditions,
        READY_FOR_PROVISIONING,
        status=is_ready,
        reason=resolved.reason,
        message=resolved.message,
        now=now,
        generation=buffer.metadata.generation,
    )
    reason, message = _provisioning(resolved, room)
    template = objects.pod_template
    return CapacityBufferStatus(
        pod_template_ref=LocalObjectRef(name=template.name) if template is not None else None,
        pod_template_generation=template.metadata.generation if template is not None else None,
        replicas=resolved.chunks if is_ready else None,
        provisioning_strategy=buffer.spec.provisioning_strategy,
        conditions=with_condition(
            conditions,
            PROVISIONING,
            status=reason == FITS_EXISTING_CAPACITY,
            reason=reason,
            message=message,
            now=now,
            generation=buffer.metadata.generation,
        ),
    )


def _all_fit(chunks: int) -> str:
    return "its chunk fits" if chunks == 1 else f"all {chunks} chunks fit"


def _provisioning(resolved: ResolvedBuffer, room: ChunkRoom) -> tuple[str, str]:
    """The reason and the message of the condition Provisioning."""
    if resolved.template is None:
        return NOT_READY_FOR_PROVISIONING, resolved.message
    if not resolved.chunks:
        return BUFFER_EMPTY, "the buffer has no chunks"
    if room.fitting == resolved.chunks:
        return FITS_EXISTING_CAPACITY, f"{_all_fit(resolved.chunks)} on existing nodes"
    message = f"{room.fitting} of {plural(resolved.chunks, 'chunk')} fit on existing nodes"
    if room.coming:
        message += f", {room.coming} on nodes that are coming"
    if room.unschedulable:
        message += f"; {room.unschedulable} can't be scheduled: {room.why}"
    return REQUIRES_NEW_CAPACITY, message


def _write_status(context: ReconcileContext, resolved: ResolvedBuffer, room: ChunkRoom) -> None:
    buffer = resolved.objects.buffer

    def change(current: CapacityBuffer) -> CapacityBuffer:
        objects = type(resolved.objects)(
            buffer=with_fields(buffer, metadata=current.metadata, status=current.status),
            pod_template=resolved.objects.pod_template,
            workload=resolved.objects.workload,
        )
        return with_fields(current, status=status(with_fields(resolved, objects=objects), room, now=context.now))

    writes.update_status(context.client, resources.for_kind(buffer.api_version, buffer.kind), buffer, change)
    if resolved.template is None:
        context.recorder.record(buffer.ref, "Warning", resolved.reason, resolved.message)
