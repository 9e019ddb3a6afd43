"""What a ProvisioningRequest is told, by what it was told before, its age, and the room for its pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from functions.lifecycle.statuses.chunk_room import ChunkRoom
from functions.lifecycle.statuses.provisioning_request_status import Answer, answer_of
from shared.api.capacity_buffer import CapacityBuffer
from shared.api.kubernetes import PodTemplate
from shared.api.meta import Condition, ObjectMeta
from shared.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    BOOKING,
    CHECK_CAPACITY,
    EXPIRATION,
    PROVISIONED,
    ProvisioningRequest,
    ProvisioningRequestSpec,
    ProvisioningRequestStatus,
)
from shared.scheduling.buffers.chunks import ResolvedBuffer
from shared.snapshot import BufferObjects

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def request(
    *, provisioning_class: str = ATOMIC_SCALE_UP, age: timedelta = SECOND, provided: timedelta | None = None, **of: str
) -> ProvisioningRequest:
    """``provided`` is how long ago nodes were provided."""
    since = (
        [] if provided is None else [Condition(type=PROVISIONED, status="True", last_transition_time=NOW - provided)]
    )
    return ProvisioningRequest(
        metadata=ObjectMeta(name="train", namespace="ml", creation_timestamp=NOW - age),
        spec=ProvisioningRequestSpec(provisioning_class_name=provisioning_class, parameters=of),
        status=ProvisioningRequestStatus(conditions=since),
    )


def answer(of: ProvisioningRequest, rooms: Sequence[ChunkRoom], *, chunks: int = 4, resolved: bool = True) -> Answer:
    """Of a request with a pod set for each room, each of that number of chunks."""
    buffer = CapacityBuffer(metadata=of.metadata)
    template = PodTemplate() if resolved else None
    pod_sets = [
        ResolvedBuffer(
            objects=BufferObjects(buffer=buffer, request=of, pod_set=number),
            chunks=chunks,
            template=template,
            reason="Resolved" if resolved else "PodTemplateNotFound",
        )
        for number in range(len(rooms))
    ]
    return answer_of(of, pod_sets, rooms, now=NOW)


ALL, SOME, NONE = ChunkRoom(fitting=4), ChunkRoom(fitting=2, coming=2), ChunkRoom(unschedulable=4, why="no capacity")


@pytest.mark.parametrize(
    ("of", "rooms", "expected"),
    [
        pytest.param(request(), [ALL, ALL], ("Provisioned", True, "CapacityIsProvisioned"), id="all nodes are up"),
        pytest.param(request(), [ALL, SOME], ("Provisioned", False, "CapacityIsNotFound"), id="one pod set waits"),
        pytest.param(request(), [NONE], ("Provisioned", False, "CapacityIsNotFound"), id="no capacity"),
        pytest.param(
            request(provisioning_class=CHECK_CAPACITY), [ALL], ("Provisioned", True, "CapacityIsFound"), id="a check"
        ),
        pytest.param(
            request(provisioning_class=CHECK_CAPACITY, noRetry="true"),
            [SOME],
            ("Failed", True, "CapacityIsNotFound"),
            id="a check that may not wait",
        ),
        pytest.param(
            request(noRetry="true"), [SOME], ("Provisioned", False, "CapacityIsNotFound"), id="only checks may fail"
        ),
        pytest.param(request(provided=BOOKING - SECOND), [NONE], ("Provisioned", True, ""), id="booked: it stays"),
        pytest.param(
            request(provided=BOOKING),
            [ALL],
            ("BookingExpired", True, "CapacityReservationTimeExpired"),
            id="the booking is over",
        ),
        pytest.param(request(age=EXPIRATION), [NONE], ("Failed", True, "Expired"), id="nothing in seven days"),
        pytest.param(
            request(age=EXPIRATION, provided=SECOND), [ALL], ("Provisioned", True, ""), id="provided on its last day"
        ),
    ],
)
def test_the_condition_follows_from_the_room_and_the_time(
    of: ProvisioningRequest, rooms: Sequence[ChunkRoom], expected: tuple[str, bool, str]
) -> None:
    given = answer(of, rooms)
    assert (given.type, given.status, given.reason) == expected


def test_the_message_counts_the_pods_of_all_pod_sets_and_says_why() -> None:
    assert answer(request(), [SOME, NONE]).message == (
        "2 of 8 pods fit on nodes that are there, 2 on nodes that are coming; no capacity"
    )


def test_a_missing_template_is_waited_for() -> None:
    given = answer(request(), [NONE], resolved=False)
    assert (given.type, given.status, given.reason) == ("Provisioned", False, "PodTemplateNotFound")
