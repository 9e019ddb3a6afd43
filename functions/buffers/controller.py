"""Writes on each CapacityBuffer what its queue, its alarm and its events ask for.

Invocations need no lease: what is written follows from what was read, and is computed again after a conflict.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from functions.buffers import observation
from shared.api import buffer_signals
from shared.api.capacity_buffer import CapacityBuffer
from shared.base.struct import Struct
from shared.cluster import listing, resources, writes
from shared.cluster.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.buffers.messages import Batch
    from functions.buffers.readings import Readings, SourceReader
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder


class Report(Struct, kw_only=True):
    """How many buffers follow something, were changed, and could not be written."""

    following: int = 0
    changed: int = 0
    failed: int = 0


def reconcile(
    batch: Batch, *, client: Client, recorder: Recorder, sources: SourceReader, now: datetime, logger: Logger
) -> Report:
    """Raise buffers by the batch's events, and read queues and alarms if the batch asks for that.

    Raises:
        ApiError: the buffers can't be listed.
    """
    buffers = [b for b in _all_buffers(client) if b.is_active and _is_followed(b)]
    if not buffers:
        return Report()
    readings: Readings | None = None
    if batch.read:
        readings = sources.read([buffer_signals.signals(b.metadata.annotations) for b in buffers])
    changed = failed = 0
    for buffer in buffers:
        try:
            changed += _write(client, buffer, partial(_observed, batch=batch, readings=readings, now=now))
        except NotFoundError:
            continue  # deleted meanwhile
        except ApiError as error:
            failed += 1
            logger.warning("A CapacityBuffer was not written", extra={"buffer": buffer.key, "why": str(error)})
        if readings is not None:
            for sentence in observation.unknown(buffer, readings):
                recorder.record(buffer.ref, "Warning", "DemandUnknown", sentence)
    if readings is not None and readings.unknown:
        logger.warning("Sources of CapacityBuffers are unknown", extra={"why": sorted(readings.unknown.values())})
    return Report(following=len(buffers), changed=changed, failed=failed)


def _all_buffers(client: Client) -> tuple[CapacityBuffer, ...]:
    return listing.list_served(client, resources.CAPACITY_BUFFER_VERSIONS, CapacityBuffer).objects


def _is_followed(buffer: CapacityBuffer) -> bool:
    """Whether a buffer follows something, or still has what was seen; not if its annotations are invalid."""
    annotations = buffer.metadata.annotations
    if any(buffer_signals.problems(annotations)):
        return False
    return bool(buffer_signals.signals(annotations)) or not buffer_signals.WRITTEN.isdisjoint(annotations)


def _observed(buffer: CapacityBuffer, *, batch: Batch, readings: Readings | None, now: datetime) -> CapacityBuffer:
    raised = observation.with_arrivals(buffer, batch.arrivals, now=now)
    return observation.with_readings(raised, readings, now=now) if readings is not None else raised


def _write(client: Client, buffer: CapacityBuffer, change: Callable[[CapacityBuffer], CapacityBuffer]) -> bool:
    """Whether the buffer was changed."""
    resource = resources.for_kind(buffer.api_version, buffer.kind)
    stored = writes.update(client, resource, buffer, change)
    return stored.metadata.resource_version != buffer.metadata.resource_version
