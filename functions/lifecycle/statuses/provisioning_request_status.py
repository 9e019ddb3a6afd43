"""Status of ProvisioningRequests: whether all of their pods have room on nodes that are there.

Conditions and reasons are Cluster Autoscaler's (shared.api.provisioning_request); it sets Provisioned as soon as
machines are requested, here all nodes are up: EC2 may launch only a part of them, which goes back.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from shared.api.meta import EventReason, condition, with_condition
from shared.api.provisioning_request import (
    ACCEPTED,
    BOOKING,
    BOOKING_EXPIRED,
    FAILED,
    PROVISIONED,
    ProvisioningRequest,
    ProvisioningRequestStatus,
)
from shared.base.plurals import plural
from shared.base.struct import Struct, with_fields
from shared.cluster import resources, writes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from functions.lifecycle.statuses.chunk_room import ChunkRoom
    from shared.api.meta import Condition
    from shared.scheduling.buffers.chunks import ResolvedBuffer

ACCEPTED_REASON = "Accepted"
FOUND, PROVIDED, NOT_FOUND = "CapacityIsFound", "CapacityIsProvisioned", "CapacityIsNotFound"
_BOOKED_FOR = f"it was booked for {BOOKING.total_seconds() / 60:.0f} minutes"
BOOKING_OVER, EXPIRED = "CapacityReservationTimeExpired", "Expired"


class Answer(Struct, kw_only=True):
    """One condition to set."""

    type: str
    status: bool
    reason: str
    message: str


def write_statuses(
    context: ReconcileContext, buffers: Sequence[ResolvedBuffer], rooms: Mapping[str, ChunkRoom]
) -> None:
    """Write the status of each request; ``rooms`` by the keys of its pod sets."""
    requested = [b for b in buffers if b.objects.request is not None]
    for ref, pod_sets in groupby(requested, key=lambda b: b.objects.buffer.ref):
        own = tuple(pod_sets)
        request = own[0].objects.request
        assert request is not None
        answer = answer_of(request, own, [rooms[b.objects.key] for b in own], now=context.now)
        context.attempt(ref, partial(_write, context, request, answer))
        if answer.type == FAILED:
            message = f"{answer.reason}: {answer.message}"
            context.recorder.record(ref, "Warning", EventReason("ProvisioningRequestFailed"), message)


def answer_of(
    request: ProvisioningRequest, pod_sets: Sequence[ResolvedBuffer], rooms: Sequence[ChunkRoom], *, now: datetime
) -> Answer:
    """What the request is told now, with this room for the pods of its pod sets."""
    provided = condition(request.status.conditions, PROVISIONED)
    if provided is not None and provided.status == "True":
        if request.is_expired(now):
            return Answer(type=BOOKING_EXPIRED, status=True, reason=BOOKING_OVER, message=_BOOKED_FOR)
        return Answer(type=PROVISIONED, status=True, reason=provided.reason, message=provided.message)
    if request.is_expired(now):
        return Answer(type=FAILED, status=True, reason=EXPIRED, message="no capacity was found for it in 7 days")
    return _waiting(request, pod_sets, rooms)


def _waiting(request: ProvisioningRequest, pod_sets: Sequence[ResolvedBuffer], rooms: Sequence[ChunkRoom]) -> Answer:
    """What a request is told that has not been provided so far."""
    unresolved = next((b for b in pod_sets if b.template is None), None)
    if unresolved is not None:
        return Answer(type=PROVISIONED, status=False, reason=unresolved.reason, message=unresolved.message)
    wanted, fitting = sum(b.chunks for b in pod_sets), sum(room.fitting for room in rooms)
    if fitting == wanted:
        nodes = f"nodes for all {plural(wanted, 'pod')} are there" if wanted != 1 else "a node for its pod is there"
        return Answer(type=PROVISIONED, status=True, reason=PROVIDED if request.buys else FOUND, message=nodes)
    message = f"{fitting} of {plural(wanted, 'pod')} fit on nodes that are there"
    if coming := sum(room.coming for room in rooms):
        message += f", {coming} on nodes that are coming"
    if why := next((room.why for room in rooms if room.why), ""):
        message += f"; {why}"
    if request.fails_at_once:
        return Answer(type=FAILED, status=True, reason=NOT_FOUND, message=message)
    return Answer(type=PROVISIONED, status=False, reason=NOT_FOUND, message=message)


def _write(context: ReconcileContext, request: ProvisioningRequest, answer: Answer) -> None:
    def change(current: ProvisioningRequest) -> ProvisioningRequest:
        if current.has_ended:
            return current
        conditions = _with(current.status.conditions, _accepted(current), current, context.now)
        conditions = _with(conditions, answer, current, context.now)
        return with_fields(current, status=ProvisioningRequestStatus(conditions=conditions))

    writes.update_status(context.client, resources.for_kind(request.api_version, request.kind), request, change)


def _accepted(request: ProvisioningRequest) -> Answer:
    parameters = ", ".join(request.unsupported_parameters)
    message = f"Tenon looks for capacity; parameters that aren't supported: {parameters}"
    return Answer(
        type=ACCEPTED, status=True, reason=ACCEPTED_REASON, message=message if parameters else message.partition(";")[0]
    )


def _with(conditions: list[Condition], answer: Answer, request: ProvisioningRequest, now: datetime) -> list[Condition]:
    return with_condition(
        conditions,
        answer.type,
        status=answer.status,
        reason=answer.reason,
        message=answer.message,
        now=now,
        generation=request.metadata.generation,
    )
